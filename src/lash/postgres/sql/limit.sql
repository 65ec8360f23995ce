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
-- Limits after a name and a key, in order, with the time: the rate, and how many places are taken and waited for.
SELECT
    u.name, u.key, r.interval_us, r.burst, r.free_at_us, l.concurrency,
    (
        SELECT count(*) FROM :"schema".lash_limit_places AS p
        WHERE p.name = u.name AND p.key = u.key AND p.state = 2
    ),
    (
        SELECT count(*) FROM :"schema".lash_limit_places AS p
        WHERE p.name = u.name AND p.key = u.key AND p.state < 2
    ),
    :"schema".lash_now_ms()
FROM (
    (
        SELECT f.name, f.key FROM :"schema".lash_limits AS f
        WHERE (f.name, f.key) > ($1::text, $2::text)
        ORDER BY f.name, f.key
        LIMIT $3::bigint
    )
    UNION
    (
        SELECT f.name, f.key FROM :"schema".lash_limit_lines AS f
        WHERE (f.name, f.key) > ($1::text, $2::text)
        ORDER BY f.name, f.key
        LIMIT $3::bigint
    )
    ORDER BY name, key
    LIMIT $3::bigint
) AS u
LEFT JOIN :"schema".lash_limits AS r ON r.name = u.name AND r.key = u.key
LEFT JOIN :"schema".lash_limit_lines AS l ON l.name = u.name AND l.key = u.key
ORDER BY u.name, u.key;

-- name: limit_prune
-- Removes limits that are free, at most $1: the next reservation makes the same row.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
chosen AS (
    SELECT l.name, l.key
    FROM :"schema".lash_limits AS l, clock
    WHERE l.free_at_us <= 1000 * clock.now_ms
    LIMIT $1::bigint
    FOR UPDATE OF l SKIP LOCKED
)
DELETE FROM :"schema".lash_limits AS l
USING chosen AS c
WHERE l.name = c.name AND l.key = c.key;

-- name: limit_line
-- Makes the line of a limit on concurrency, or changes how many may run at once; the line is locked.
INSERT INTO :"schema".lash_limit_lines AS l (name, key, concurrency, used_at_ms)
VALUES ($1::text, $2::text, $3::bigint, :"schema".lash_now_ms())
ON CONFLICT (name, key) DO UPDATE SET concurrency = excluded.concurrency, used_at_ms = excluded.used_at_ms;

-- name: limit_lock
-- Locks a line.
SELECT l.concurrency FROM :"schema".lash_limit_lines AS l WHERE l.name = $1::text AND l.key = $2::text FOR UPDATE;

-- name: limit_enter
-- Puts a run at the end of a line, unless it has a place there, and returns the place and its state. A place that an
-- earlier run held is held by this one. No row if the lease does not hold.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms)
INSERT INTO :"schema".lash_limit_places AS p (
    name, key, holder, session_key, process_key, state, fencing, until_ms, since_ms
)
SELECT $1::text, $2::text, $3::text, o.session_key, o.process_key, 0, $7::bigint, 0, o.now_ms
FROM (
    SELECT l.session_key, NULL::bigint AS process_key, clock.now_ms
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    CROSS JOIN clock
    WHERE s.session_id = $4::text AND l.token = $6::text AND l.fencing = $7::bigint AND l.expires_at_ms > clock.now_ms
    UNION ALL
    SELECT NULL, l.process_key, clock.now_ms
    FROM :"schema".lash_processes AS r
    JOIN :"schema".lash_process_leases AS l ON l.process_key = r.process_key
    CROSS JOIN clock
    WHERE r.process_id = $5::text AND l.token = $6::text AND l.fencing = $7::bigint AND l.expires_at_ms > clock.now_ms
) AS o
ON CONFLICT (holder) DO UPDATE SET fencing = excluded.fencing
RETURNING p.place, p.state;

-- name: limit_hold
-- Takes a place that is offered.
UPDATE :"schema".lash_limit_places SET state = 2, since_ms = :"schema".lash_now_ms()
WHERE place = $1::bigint AND state = 1;

-- name: limit_leave
-- Gives back a place, or leaves the line. A place that a later run holds stays.
DELETE FROM :"schema".lash_limit_places WHERE holder = $1::text AND (state < 2 OR fencing = $2::bigint);

-- name: limit_serve
-- Frees the places of a locked line whose holders have lost their leases, and places that were offered in vain. Offers
-- the free places for $3 milliseconds to the first that wait, and wakes them, except for place $4. Notes when a place
-- may be free without being given back, if a run waits for one. Returns how many sessions were woken, and the processes.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
taken AS MATERIALIZED (
    SELECT
        p.place,
        CASE p.state WHEN 1 THEN p.until_ms ELSE coalesce(s.expires_at_ms, r.expires_at_ms, 0) END AS until_ms
    FROM :"schema".lash_limit_places AS p
    LEFT JOIN :"schema".lash_session_leases AS s
        ON p.state = 2 AND s.session_key = p.session_key AND s.fencing = p.fencing AND s.token IS NOT NULL
    LEFT JOIN :"schema".lash_process_leases AS r
        ON p.state = 2 AND r.process_key = p.process_key AND r.fencing = p.fencing AND r.token IS NOT NULL
    WHERE p.name = $1::text AND p.key = $2::text AND p.state > 0
),
dropped AS (
    DELETE FROM :"schema".lash_limit_places AS p
    USING taken AS t, clock
    WHERE p.place = t.place AND t.until_ms <= clock.now_ms
),
chosen AS MATERIALIZED (
    SELECT p.place
    FROM :"schema".lash_limit_places AS p
    WHERE p.name = $1::text AND p.key = $2::text AND p.state = 0
    ORDER BY p.place
    LIMIT greatest(
        0,
        (SELECT l.concurrency FROM :"schema".lash_limit_lines AS l WHERE l.name = $1::text AND l.key = $2::text)
        - (SELECT count(*) FROM taken AS t, clock WHERE t.until_ms > clock.now_ms)
    )
),
offered AS (
    UPDATE :"schema".lash_limit_places AS p
    SET state = 1, until_ms = clock.now_ms + $3::bigint
    FROM chosen AS c, clock
    WHERE p.place = c.place
    RETURNING p.place, p.session_key, p.process_key, p.until_ms
),
noted AS (
    INSERT INTO :"schema".lash_session_wakes (wake_id, session_key)
    SELECT replace(gen_random_uuid()::text, '-', ''), o.session_key
    FROM offered AS o
    WHERE o.session_key IS NOT NULL AND o.place <> $4::bigint
    RETURNING session_key
),
woken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET wake_seq = l.wake_seq + 1, ready_at_ms = least(coalesce(l.ready_at_ms, clock.now_ms), clock.now_ms)
    FROM offered AS o, clock
    WHERE l.process_key = o.process_key AND l.runnable AND o.place <> $4::bigint
    RETURNING l.process_key
),
checked AS (
    UPDATE :"schema".lash_limit_lines AS l
    SET check_at_ms = CASE
        WHEN EXISTS (
            SELECT 1 FROM :"schema".lash_limit_places AS p
            WHERE p.name = $1::text AND p.key = $2::text AND p.state = 0
                AND p.place > coalesce((SELECT max(c.place) FROM chosen AS c), 0)
        ) THEN (
            SELECT min(u.until_ms)
            FROM (
                SELECT t.until_ms FROM taken AS t, clock WHERE t.until_ms > clock.now_ms
                UNION ALL
                SELECT o.until_ms FROM offered AS o
            ) AS u
        )
    END
    WHERE l.name = $1::text AND l.key = $2::text
)
SELECT
    (SELECT count(*) FROM noted),
    array(
        SELECT r.process_id FROM woken AS w JOIN :"schema".lash_processes AS r ON r.process_key = w.process_key
    );

-- name: limit_lines_due
-- Lines to check, the earliest first; they are locked.
SELECT l.name, l.key
FROM :"schema".lash_limit_lines AS l
WHERE l.check_at_ms <= :"schema".lash_now_ms()
ORDER BY l.check_at_ms
LIMIT $1::bigint
FOR UPDATE SKIP LOCKED;

-- name: limit_states
-- The states of the places of some runs.
SELECT p.holder, p.state FROM :"schema".lash_limit_places AS p WHERE p.holder = ANY ($1::text[]);

-- name: limit_places
-- The places of a line after a place, in the order in which runs asked for them.
SELECT
    p.place, p.state, p.since_ms,
    (SELECT s.session_id FROM :"schema".lash_sessions AS s WHERE s.session_key = p.session_key),
    (SELECT r.process_id FROM :"schema".lash_processes AS r WHERE r.process_key = p.process_key)
FROM :"schema".lash_limit_places AS p
WHERE p.name = $1::text AND p.key = $2::text AND p.place > $3::bigint
ORDER BY p.place
LIMIT $4::bigint;

-- name: limit_prune_lines
-- Removes at most $2 lines without places that were not used for $1 milliseconds.
WITH chosen AS (
    SELECT l.name, l.key
    FROM :"schema".lash_limit_lines AS l
    WHERE l.used_at_ms < :"schema".lash_now_ms() - $1::bigint
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_limit_places AS p WHERE p.name = l.name AND p.key = l.key
        )
    LIMIT $2::bigint
    FOR UPDATE OF l SKIP LOCKED
)
DELETE FROM :"schema".lash_limit_lines AS l
USING chosen AS c
WHERE l.name = c.name AND l.key = c.key;
