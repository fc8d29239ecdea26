-- How long spans take on all hosts together. `histograms` is the table that `nopal export --to parquet --dataset` writes.
-- Rows add up, so that this is the same for one host and for thousands; quantiles are within 0.8 %.
WITH buckets AS (
  SELECT span, bucket, bucket_high, sum(count) AS n, sum(sum) AS total_ns, max(max) AS longest, sum(errors) AS failed
  FROM histograms
  GROUP BY span, bucket, bucket_high
), running AS (
  SELECT span, n, total_ns, longest, failed, (bucket + bucket_high) / 2.0 AS middle,
         sum(n) OVER (PARTITION BY span ORDER BY bucket) AS up_to,
         sum(n) OVER (PARTITION BY span) AS of_all
  FROM buckets
)
SELECT span,
       sum(n) AS spans,
       sum(failed) AS errors,
       sum(total_ns) AS total_ns,
       min(CASE WHEN up_to >= 0.50 * of_all THEN middle END) AS p50_ns,
       min(CASE WHEN up_to >= 0.90 * of_all THEN middle END) AS p90_ns,
       min(CASE WHEN up_to >= 0.99 * of_all THEN middle END) AS p99_ns,
       max(longest) AS max_ns
FROM running
GROUP BY span
ORDER BY span
