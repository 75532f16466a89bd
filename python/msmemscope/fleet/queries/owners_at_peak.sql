-- Who owned the memory of every pool when it was used most.
WITH peaks AS (
    SELECT job, rank, device, process_id, event_type AS pool, max(used_bytes) AS peak_bytes
    FROM events
    WHERE event = 'MALLOC'
    GROUP BY job, rank, device, process_id, event_type
),
moments AS (
    SELECT peaks.job, peaks.rank, peaks.device, peaks.process_id, peaks.pool, min(events.time_ns) AS peak_ns
    FROM peaks
    JOIN events
        ON events.job = peaks.job AND events.rank = peaks.rank AND events.device = peaks.device
        AND events.process_id = peaks.process_id AND events.event_type = peaks.pool
        AND events.event = 'MALLOC' AND events.used_bytes = peaks.peak_bytes
    GROUP BY peaks.job, peaks.rank, peaks.device, peaks.process_id, peaks.pool
)
SELECT blocks.job, blocks.rank, blocks.device, blocks.process_id, blocks.pool,
    coalesce(blocks.owner, 'unknown') AS owner, CAST(sum(blocks.size_bytes) AS BIGINT) AS bytes, count(*) AS blocks
FROM blocks
JOIN moments
    ON moments.job = blocks.job AND moments.rank = blocks.rank AND moments.device = blocks.device
    AND moments.process_id = blocks.process_id AND moments.pool = blocks.pool
WHERE blocks.allocated_ns <= moments.peak_ns AND (blocks.freed_ns IS NULL OR blocks.freed_ns > moments.peak_ns)
GROUP BY blocks.job, blocks.rank, blocks.device, blocks.process_id, blocks.pool, coalesce(blocks.owner, 'unknown')
ORDER BY blocks.job, blocks.rank, blocks.device, blocks.process_id, blocks.pool, bytes DESC, owner
