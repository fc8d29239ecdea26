-- How often each event came, by host and day.
SELECT host, day, event, count(*) AS n FROM events GROUP BY host, day, event ORDER BY host, day, event
