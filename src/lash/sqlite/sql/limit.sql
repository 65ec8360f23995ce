-- name: limit_reserve
-- Moves the time at which a limit is free by one interval, from now at the earliest, and returns it with the time.
INSERT INTO lash_limits (name, key, interval_us, burst, free_at_us)
VALUES (:name, :key, :interval_us, :burst, 1000 * :now_ms + :interval_us)
ON CONFLICT (name, key) DO UPDATE SET
    interval_us = excluded.interval_us, burst = excluded.burst,
    free_at_us = MAX(free_at_us, 1000 * :now_ms) + excluded.interval_us
RETURNING free_at_us, :now_ms;

-- name: limit_page
-- Limits after a name and a key, in order, with the time: the rate, and how many places are taken and waited for.
SELECT
    u.name, u.key, r.interval_us, r.burst, r.free_at_us, l.concurrency,
    (SELECT COUNT(*) FROM lash_limit_places AS p WHERE p.name = u.name AND p.key = u.key AND p.state = 2),
    (SELECT COUNT(*) FROM lash_limit_places AS p WHERE p.name = u.name AND p.key = u.key AND p.state < 2),
    :now_ms
FROM (
    SELECT name, key FROM (
        SELECT name, key FROM lash_limits WHERE (name, key) > (:name, :key) ORDER BY name, key LIMIT :limit
    )
    UNION
    SELECT name, key FROM (
        SELECT name, key FROM lash_limit_lines WHERE (name, key) > (:name, :key) ORDER BY name, key LIMIT :limit
    )
    ORDER BY name, key
    LIMIT :limit
) AS u
LEFT JOIN lash_limits AS r ON r.name = u.name AND r.key = u.key
LEFT JOIN lash_limit_lines AS l ON l.name = u.name AND l.key = u.key
ORDER BY u.name, u.key;

-- name: limit_prune
-- Removes limits that are free: the next reservation makes the same row.
DELETE FROM lash_limits
WHERE (name, key) IN (
    SELECT name, key FROM lash_limits WHERE free_at_us <= 1000 * :now_ms LIMIT :limit
);

-- name: limit_line
-- Makes the line of a limit on concurrency, or changes how many may run at once.
INSERT INTO lash_limit_lines (name, key, concurrency, used_at_ms)
VALUES (:name, :key, :concurrency, :now_ms)
ON CONFLICT (name, key) DO UPDATE SET concurrency = excluded.concurrency, used_at_ms = excluded.used_at_ms;

-- name: limit_enter
-- Puts a run at the end of a line, unless it has a place there, and returns the place and its state. A place that an
-- earlier run held is held by this one. No row if the lease does not hold.
INSERT INTO lash_limit_places (name, key, holder, session_key, process_key, state, fencing, until_ms, since_ms)
SELECT :name, :key, :holder, o.session_key, o.process_key, 0, :fencing, 0, :now_ms
FROM (
    SELECT l.session_key, NULL AS process_key
    FROM lash_sessions AS s
    JOIN lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = :session_id AND l.token = :token AND l.fencing = :fencing AND l.expires_at_ms > :now_ms
    UNION ALL
    SELECT NULL, l.process_key
    FROM lash_processes AS p
    JOIN lash_process_leases AS l ON l.process_key = p.process_key
    WHERE p.process_id = :process_id AND l.token = :token AND l.fencing = :fencing AND l.expires_at_ms > :now_ms
) AS o
WHERE TRUE
ON CONFLICT (holder) DO UPDATE SET fencing = excluded.fencing
RETURNING place, state;

-- name: limit_hold
-- Takes a place that is offered.
UPDATE lash_limit_places SET state = 2, since_ms = :now_ms WHERE place = :place AND state = 1;

-- name: limit_leave
-- Gives back a place, or leaves the line. A place that a later run holds stays.
DELETE FROM lash_limit_places WHERE holder = :holder AND (state < 2 OR fencing = :fencing);

-- name: limit_drop
-- Frees the places of a line whose holders have lost their leases, and places that were offered in vain.
DELETE FROM lash_limit_places AS p
WHERE p.name = :name AND p.key = :key AND p.state > 0
    AND NOT (p.state = 1 AND p.until_ms > :now_ms)
    AND NOT EXISTS (
        SELECT 1 FROM lash_session_leases AS l
        WHERE p.state = 2 AND l.session_key = p.session_key AND l.fencing = p.fencing AND l.token IS NOT NULL
            AND l.expires_at_ms > :now_ms
    )
    AND NOT EXISTS (
        SELECT 1 FROM lash_process_leases AS l
        WHERE p.state = 2 AND l.process_key = p.process_key AND l.fencing = p.fencing AND l.token IS NOT NULL
            AND l.expires_at_ms > :now_ms
    );

-- name: limit_offer
-- Offers the free places of a line to the first that wait, and returns who gets one.
UPDATE lash_limit_places SET state = 1, until_ms = :until_ms
WHERE place IN (
    SELECT p.place FROM lash_limit_places AS p
    WHERE p.name = :name AND p.key = :key AND p.state = 0
    ORDER BY p.place
    LIMIT MAX(
        COALESCE((SELECT l.concurrency FROM lash_limit_lines AS l WHERE l.name = :name AND l.key = :key), 0)
        - (SELECT COUNT(*) FROM lash_limit_places AS t WHERE t.name = :name AND t.key = :key AND t.state > 0),
        0
    )
)
RETURNING
    place, session_key, process_key,
    (SELECT p.process_id FROM lash_processes AS p WHERE p.process_key = lash_limit_places.process_key);

-- name: limit_check_at
-- Notes when a place of a line may be free without being given back, if a run waits for one.
UPDATE lash_limit_lines SET check_at_ms = CASE
    WHEN EXISTS (SELECT 1 FROM lash_limit_places AS p WHERE p.name = :name AND p.key = :key AND p.state = 0)
    THEN (
        SELECT MIN(COALESCE(s.expires_at_ms, r.expires_at_ms, t.until_ms))
        FROM lash_limit_places AS t
        LEFT JOIN lash_session_leases AS s ON t.state = 2 AND s.session_key = t.session_key
        LEFT JOIN lash_process_leases AS r ON t.state = 2 AND r.process_key = t.process_key
        WHERE t.name = :name AND t.key = :key AND t.state > 0
    )
END
WHERE name = :name AND key = :key;

-- name: limit_lines_due
-- Lines to check, the earliest first.
SELECT name, key
FROM lash_limit_lines INDEXED BY lash_limit_lines_check
WHERE check_at_ms IS NOT NULL AND check_at_ms <= :now_ms
ORDER BY check_at_ms
LIMIT :limit;

-- name: limit_states
-- The states of the places of some runs.
SELECT p.holder, p.state
FROM json_each(:holders) AS wanted
CROSS JOIN lash_limit_places AS p ON p.holder = wanted.value;

-- name: limit_places
-- The places of a line after a place, in the order in which runs asked for them.
SELECT
    p.place, p.state, p.since_ms,
    (SELECT s.session_id FROM lash_sessions AS s WHERE s.session_key = p.session_key),
    (SELECT r.process_id FROM lash_processes AS r WHERE r.process_key = p.process_key)
FROM lash_limit_places AS p
WHERE p.name = :name AND p.key = :key AND p.place > :after
ORDER BY p.place
LIMIT :limit;

-- name: limit_prune_lines
-- Removes lines without places that were not used for a while.
DELETE FROM lash_limit_lines
WHERE (name, key) IN (
    SELECT l.name, l.key FROM lash_limit_lines AS l
    WHERE l.used_at_ms < :now_ms - :unused_ms
        AND NOT EXISTS (SELECT 1 FROM lash_limit_places AS p WHERE p.name = l.name AND p.key = l.key)
    LIMIT :limit
);
