-- Blocks that were alive at a time, the largest first, with the line that allocated them.
-- Parameter time_ns: nanoseconds since 1970.
-- Parameter limit = 1000: rows at most.
WITH sites AS (
    SELECT job, rank, process_id, stack_id, call_site FROM stacks WHERE position = 0
)
SELECT blocks.job, blocks.rank, blocks.device, blocks.process_id, blocks.pool, blocks.allocation_id, blocks.size_bytes,
    blocks.allocated_ns, blocks.allocated_step, blocks.freed_ns, blocks.owner, sites.call_site
FROM blocks
LEFT JOIN sites
    ON sites.job = blocks.job AND sites.rank = blocks.rank AND sites.process_id = blocks.process_id
    AND sites.stack_id = blocks.stack_id
WHERE blocks.allocated_ns <= ${time_ns} AND (blocks.freed_ns IS NULL OR blocks.freed_ns > ${time_ns})
ORDER BY blocks.size_bytes DESC, blocks.job, blocks.rank, blocks.device, blocks.process_id, blocks.allocation_id
LIMIT ${limit}
