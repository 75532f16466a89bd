-- Growth of every pool per step, over the second half of the steps: what came in while memory was settling is none.
WITH numbered AS (
    SELECT job, rank, device, process_id, pool, step, end_bytes,
        row_number() OVER (PARTITION BY job, rank, device, process_id, pool ORDER BY ended_ns, step) AS number,
        count(*) OVER (PARTITION BY job, rank, device, process_id, pool) AS steps
    FROM steps
),
settled AS (
    SELECT job, rank, device, process_id, pool, steps,
        min(number) AS first_number,
        max(number) AS last_number
    FROM numbered
    WHERE number - 1 >= floor((steps - 1) / 2)
    GROUP BY job, rank, device, process_id, pool, steps
)
SELECT settled.job, settled.rank, settled.device, settled.process_id, settled.pool, settled.steps,
    CAST(last_step.end_bytes - first_step.end_bytes AS DOUBLE)
        / CAST(settled.last_number - settled.first_number AS DOUBLE) AS bytes_per_step
FROM settled
JOIN numbered AS first_step
    ON first_step.job = settled.job AND first_step.rank = settled.rank AND first_step.device = settled.device
    AND first_step.process_id = settled.process_id AND first_step.pool = settled.pool
    AND first_step.number = settled.first_number
JOIN numbered AS last_step
    ON last_step.job = settled.job AND last_step.rank = settled.rank AND last_step.device = settled.device
    AND last_step.process_id = settled.process_id AND last_step.pool = settled.pool
    AND last_step.number = settled.last_number
WHERE settled.last_number > settled.first_number
ORDER BY settled.job, settled.rank, settled.device, settled.process_id, settled.pool
