-- Bytes in use of every pool at a time.
-- Parameter time_ns: nanoseconds since 1970.
SELECT job, rank, device, process_id, pool, CAST(sum(size_bytes) AS BIGINT) AS used_bytes, count(*) AS blocks
FROM blocks
WHERE allocated_ns <= ${time_ns} AND (freed_ns IS NULL OR freed_ns > ${time_ns})
GROUP BY job, rank, device, process_id, pool
ORDER BY job, rank, device, process_id, pool
