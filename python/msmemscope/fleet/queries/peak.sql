-- Most bytes in use of every pool, and when that was first reached.
WITH peaks AS (
    SELECT job, rank, device, process_id, event_type AS pool, max(used_bytes) AS peak_bytes
    FROM events
    WHERE event = 'MALLOC'
    GROUP BY job, rank, device, process_id, event_type
)
SELECT peaks.job, peaks.rank, peaks.device, peaks.process_id, peaks.pool, peaks.peak_bytes, min(events.time_ns) AS peak_ns
FROM peaks
JOIN events
    ON events.job = peaks.job AND events.rank = peaks.rank AND events.device = peaks.device
    AND events.process_id = peaks.process_id AND events.event_type = peaks.pool
    AND events.event = 'MALLOC' AND events.used_bytes = peaks.peak_bytes
GROUP BY peaks.job, peaks.rank, peaks.device, peaks.process_id, peaks.pool, peaks.peak_bytes
ORDER BY peaks.job, peaks.rank, peaks.device, peaks.process_id, peaks.pool
