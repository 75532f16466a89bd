-- Blocks of framework pools that were kept from step to step, by the line that allocated them: allocated in the second
-- step of the device or later, alive after the end of one more step, and still alive at the end of the last one. Lines
-- that kept blocks of three steps or more are leaks.
-- Parameter least_steps = 3: steps from which a line must have kept blocks.
WITH last_steps AS (
    SELECT job, rank, device, process_id, max(ended_ns) AS last_ns, count(DISTINCT step) AS ended
    FROM steps
    GROUP BY job, rank, device, process_id
),
sites AS (
    SELECT job, rank, process_id, stack_id, call_site FROM stacks WHERE position = 0
),
kept AS (
    SELECT blocks.job, blocks.rank, blocks.device, blocks.process_id, blocks.pool, blocks.size_bytes, blocks.device_step,
        blocks.allocated_step, blocks.operator, coalesce(sites.call_site, 'no call stack recorded') AS call_site
    FROM blocks
    JOIN last_steps
        ON last_steps.job = blocks.job AND last_steps.rank = blocks.rank AND last_steps.device = blocks.device
        AND last_steps.process_id = blocks.process_id
    LEFT JOIN sites
        ON sites.job = blocks.job AND sites.rank = blocks.rank AND sites.process_id = blocks.process_id
        AND sites.stack_id = blocks.stack_id
    WHERE blocks.pool IN ('PTA', 'MINDSPORE', 'ATB') AND NOT blocks.is_shadow
        AND blocks.device_step >= 2 AND last_steps.ended > blocks.device_step
        AND (blocks.freed_ns IS NULL OR blocks.freed_ns > last_steps.last_ns)
)
SELECT job, rank, device, process_id, pool, call_site, count(*) AS blocks, CAST(sum(size_bytes) AS BIGINT) AS bytes,
    count(DISTINCT device_step) AS steps, min(allocated_step) AS first_step, max(allocated_step) AS last_step
FROM kept
GROUP BY job, rank, device, process_id, pool, call_site
HAVING count(DISTINCT device_step) >= ${least_steps}
ORDER BY bytes DESC, job, rank, device, process_id, pool, call_site
