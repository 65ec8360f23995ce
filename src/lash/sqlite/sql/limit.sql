-- name: limit_reserve
-- Moves the time at which a limit is free by one interval, from now at the earliest, and returns it with the time.
INSERT INTO lash_limits (name, key, interval_us, burst, free_at_us)
VALUES (:name, :key, :interval_us, :burst, 1000 * :now_ms + :interval_us)
ON CONFLICT (name, key) DO UPDATE SET
    interval_us = excluded.interval_us, burst = excluded.burst,
    free_at_us = MAX(free_at_us, 1000 * :now_ms) + excluded.interval_us
RETURNING free_at_us, :now_ms;

-- name: limit_page
-- Limits after a name and a key, in order, with the time.
SELECT name, key, interval_us, burst, free_at_us, :now_ms
FROM lash_limits
WHERE (name, key) > (:name, :key)
ORDER BY name, key
LIMIT :limit;

-- name: limit_prune
-- Removes limits that are free: the next reservation makes the same row.
DELETE FROM lash_limits
WHERE (name, key) IN (
    SELECT name, key FROM lash_limits WHERE free_at_us <= 1000 * :now_ms LIMIT :limit
);
