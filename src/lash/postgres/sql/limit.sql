-- name: limit_reserve
-- Moves the time at which a limit is free by one interval, from now at the earliest, and returns it with the time.
INSERT INTO :"schema".lash_limits AS l (name, key, interval_us, burst, free_at_us)
SELECT $1::text, $2::text, $3::bigint, $4::bigint, 1000 * clock.now_ms + $3::bigint
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
ON CONFLICT (name, key) DO UPDATE SET
    interval_us = excluded.interval_us, burst = excluded.burst,
    free_at_us = greatest(l.free_at_us, 1000 * :"schema".lash_now_ms()) + excluded.interval_us
RETURNING l.free_at_us, :"schema".lash_now_ms();

-- name: limit_page
-- Limits after a name and a key, in order, with the time.
SELECT l.name, l.key, l.interval_us, l.burst, l.free_at_us, :"schema".lash_now_ms()
FROM :"schema".lash_limits AS l
WHERE (l.name, l.key) > ($1::text, $2::text)
ORDER BY l.name, l.key
LIMIT $3::bigint;

-- name: limit_prune
-- Removes limits that are free, at most $1: the next reservation makes the same row. Returns how many.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
chosen AS (
    SELECT l.name, l.key
    FROM :"schema".lash_limits AS l, clock
    WHERE l.free_at_us <= 1000 * clock.now_ms
    LIMIT $1::bigint
    FOR UPDATE OF l SKIP LOCKED
),
gone AS (
    DELETE FROM :"schema".lash_limits AS l
    USING chosen AS c
    WHERE l.name = c.name AND l.key = c.key
    RETURNING 1
)
SELECT count(*) FROM gone;
