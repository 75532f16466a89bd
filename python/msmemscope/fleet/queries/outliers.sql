-- Ranks whose peak is far from the median of their job: farther than five times the usual distance (the median of the
-- distances, scaled to a standard deviation), and than one part in a hundred. Pipeline stages are not known here.
-- Of the processes of a rank the one with most memory stands for it.
WITH peaks_of_processes AS (
    SELECT job, rank, device, process_id, event_type AS pool, max(used_bytes) AS peak_bytes
    FROM events
    WHERE event = 'MALLOC'
    GROUP BY job, rank, device, process_id, event_type
),
ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY job, rank, device, pool, CASE WHEN rank < 0 THEN process_id ELSE 0 END
        ORDER BY peak_bytes DESC, process_id
    ) AS place
    FROM peaks_of_processes
),
peaks AS (
    SELECT job, rank, device, process_id, pool, peak_bytes
    FROM ranked
    WHERE place = 1
),
centers AS (
    SELECT job, pool, median(peak_bytes) AS median_bytes, count(*) AS ranks
    FROM peaks
    GROUP BY job, pool
),
distances AS (
    SELECT peaks.job, peaks.pool, median(abs(peaks.peak_bytes - centers.median_bytes)) AS usual_bytes
    FROM peaks
    JOIN centers ON centers.job = peaks.job AND centers.pool = peaks.pool
    GROUP BY peaks.job, peaks.pool
)
SELECT peaks.job, peaks.rank, peaks.device, peaks.process_id, peaks.pool, peaks.peak_bytes, centers.median_bytes,
    distances.usual_bytes, centers.ranks
FROM peaks
JOIN centers ON centers.job = peaks.job AND centers.pool = peaks.pool
JOIN distances ON distances.job = peaks.job AND distances.pool = peaks.pool
WHERE centers.ranks >= 3 AND peaks.peak_bytes <> centers.median_bytes
    AND abs(peaks.peak_bytes - centers.median_bytes) >= 5 * 1.4826 * distances.usual_bytes
    AND abs(peaks.peak_bytes - centers.median_bytes) >= 0.01 * centers.median_bytes
ORDER BY peaks.job, peaks.pool, peaks.rank, peaks.device, peaks.process_id
