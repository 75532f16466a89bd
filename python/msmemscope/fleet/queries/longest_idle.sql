-- Blocks by the longest time in which nobody touched them, while operators were seen to touch blocks.
-- Parameter limit = 100: rows at most.
WITH touches AS (
    SELECT job, rank, device, process_id, allocation_id, time_ns,
        lag(time_ns) OVER (PARTITION BY job, rank, device, process_id, allocation_id ORDER BY time_ns) AS before_ns
    FROM events
    WHERE allocation_id IS NOT NULL AND event IN ('MALLOC', 'ACCESS', 'FREE')
),
idle AS (
    SELECT job, rank, device, process_id, allocation_id, max(time_ns - before_ns) AS idle_ns, count(*) AS touches
    FROM touches
    GROUP BY job, rank, device, process_id, allocation_id
)
SELECT idle.job, idle.rank, idle.device, idle.process_id, idle.allocation_id, blocks.pool, blocks.size_bytes, idle.idle_ns,
    idle.touches, blocks.owner
FROM idle
JOIN blocks
    ON blocks.job = idle.job AND blocks.rank = idle.rank AND blocks.device = idle.device
    AND blocks.process_id = idle.process_id AND blocks.allocation_id = idle.allocation_id
WHERE idle.idle_ns IS NOT NULL
ORDER BY idle.idle_ns DESC, idle.job, idle.rank, idle.device, idle.process_id, idle.allocation_id
LIMIT ${limit}
