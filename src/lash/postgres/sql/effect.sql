-- name: effect_row
-- One effect.
SELECT e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id, e.incarnation_id,
    e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank, e.created_at_ms, e.updated_at_ms,
    e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent
FROM :"schema".lash_effects AS e
WHERE e.scope_id = $1::text AND e.replay_key = $2::text;

-- name: effect_rows
-- Those of some effects that exist, with the scope ids $1 and the keys $2, each with its place among them. LIMIT keeps
-- this a look-up for each.
SELECT e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id, e.incarnation_id,
    e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank, e.created_at_ms, e.updated_at_ms,
    e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent, wanted.place - 1
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS wanted (scope_id, replay_key, place)
CROSS JOIN LATERAL (
    SELECT * FROM :"schema".lash_effects AS f
    WHERE f.scope_id = wanted.scope_id AND f.replay_key = wanted.replay_key
    LIMIT 1
) AS e;

-- fragment: effect_has_owner
-- Whether the session $3 or the process $4 of a scope exists; a scope without either needs none.
    CASE
        WHEN $3::text IS NOT NULL
        THEN EXISTS (SELECT 1 FROM :"schema".lash_sessions AS s WHERE s.session_id = $3::text)
        WHEN $4::text IS NOT NULL
        THEN EXISTS (SELECT 1 FROM :"schema".lash_processes AS p WHERE p.process_id = $4::text)
        ELSE true
    END

-- name: effect_page
-- Effects of a scope by their keys, at most $5, each with whether the owner of the scope exists; one row without an
-- effect if there are none.
SELECT owner.is_there, page.effect
FROM (
    SELECT
-- include: effect_has_owner
    AS is_there
) AS owner
LEFT JOIN LATERAL (
    SELECT
        e.replay_key,
        row(
            e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id,
            e.incarnation_id, e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank,
            e.created_at_ms, e.updated_at_ms, e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent
        ) AS effect
    FROM :"schema".lash_effects AS e
    WHERE e.scope_id = $1::text AND e.replay_key > $2::text
    ORDER BY e.replay_key
    LIMIT $5::bigint
) AS page ON true
ORDER BY page.replay_key;

-- name: effect_recent
-- The last effects of a scope to change, at most $2, the newest first, each with whether the owner of the scope exists;
-- an earlier key first if the times are equal. One row without an effect if there are none.
SELECT owner.is_there, page.effect
FROM (
    SELECT
-- include: effect_has_owner
    AS is_there
) AS owner
LEFT JOIN LATERAL (
    SELECT
        e.replay_key,
        e.updated_at_ms,
        row(
            e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id,
            e.incarnation_id, e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank,
            e.created_at_ms, e.updated_at_ms, e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent
        ) AS effect
    FROM :"schema".lash_effects AS e
    WHERE e.scope_id = $1::text
    ORDER BY e.updated_at_ms DESC, e.replay_key
    LIMIT $2::bigint
) AS page ON true
ORDER BY page.updated_at_ms DESC, page.replay_key;

-- name: effect_facts
-- The facts that decide about the effect of scope $1 and key $2, of session $3 or process $4, in group $5: the time,
-- whether the session or process exists, its lease, the group and the effect.
SELECT
    :"schema".lash_now_ms(),
-- include: effect_has_owner
    ,
    coalesce(
        (
            SELECT row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms)
            FROM :"schema".lash_sessions AS s
            JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
            WHERE s.session_id = $3::text
        ),
        (
            SELECT row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms)
            FROM :"schema".lash_processes AS p
            JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
            WHERE p.process_id = $4::text
        )
    ),
    (
        SELECT row(g.size, g.members, g.settled)
        FROM :"schema".lash_effect_groups AS g
        WHERE g.scope_id = $1::text AND g.group_key = $5::text
    ),
    (
        SELECT row(
            e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id,
            e.incarnation_id, e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank,
            e.created_at_ms, e.updated_at_ms, e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent
        )
        FROM :"schema".lash_effects AS e
        WHERE e.scope_id = $1::text AND e.replay_key = $2::text
    );

-- name: effect_claim
-- Starts the effect of scope $1 and key $2 under a first claim, unless it has a row, and counts it in its group $5,
-- which must have room. Its session $3 or process $4 must exist; both are null for an operation of the host. Returns
-- the claim, or no row.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Locked, to wait for a concurrent deletion.
session AS (
    SELECT s.session_key FROM :"schema".lash_sessions AS s WHERE s.session_id = $3::text FOR KEY SHARE
),
process AS (
    SELECT p.process_key FROM :"schema".lash_processes AS p WHERE p.process_id = $4::text FOR KEY SHARE
),
owner AS (
    SELECT session.session_key, NULL::bigint AS process_key FROM session
    UNION ALL
    SELECT NULL::bigint, process.process_key FROM process
    UNION ALL
    SELECT NULL::bigint, NULL::bigint WHERE $3::text IS NULL AND $4::text IS NULL
),
room AS (
    SELECT g.size, g.members
    FROM :"schema".lash_effect_groups AS g
    WHERE g.scope_id = $1::text AND g.group_key = $5::text
    FOR NO KEY UPDATE
),
begun AS (
    INSERT INTO :"schema".lash_effects AS e (
        scope_id, replay_key, session_key, process_key, envelope, envelope_hash, status, once, owner_id, incarnation_id,
        process, token, fencing, expires_at_ms, due_at_ms, group_key, created_at_ms, updated_at_ms, began_at_ms,
        attempt, traceparent
    )
    SELECT
        $1::text, $2::text, owner.session_key, owner.process_key, $6::text, $7::text, 'in_progress', $8::boolean,
        $9::text, $10::text, $11::text, $12::text, 1,
        least(clock.now_ms, 9223372036854775807 - $13::bigint) + $13::bigint,
        coalesce($17::bigint, least(clock.now_ms, 9223372036854775807 - $16::bigint) + $16::bigint),
        $5::text, clock.now_ms, clock.now_ms, clock.now_ms, $14::integer, $15::text
    FROM clock, owner
    WHERE $5::text IS NULL OR EXISTS (SELECT 1 FROM room WHERE room.members < room.size)
    ON CONFLICT (scope_id, replay_key) DO NOTHING
    RETURNING e.fencing, e.expires_at_ms, e.due_at_ms
),
joined AS (
    UPDATE :"schema".lash_effect_groups AS g
    SET members = g.members + 1
    FROM begun
    WHERE g.scope_id = $1::text AND g.group_key = $5::text
)
SELECT fencing, expires_at_ms, due_at_ms FROM begun;

-- name: effect_take
-- Gives an effect to a new runner under the next fencing number if it still has the token $4 and the fencing number $5;
-- its due time stays.
UPDATE :"schema".lash_effects AS e
SET once = $6::boolean, owner_id = $7::text, incarnation_id = $8::text, process = $9::text, token = $10::text,
    began_at_ms = clock.now_ms, attempt = $12::integer, traceparent = $13::text,
    fencing = e.fencing + 1, updated_at_ms = clock.now_ms,
    expires_at_ms = least(clock.now_ms, 9223372036854775807 - $11::bigint) + $11::bigint
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
WHERE e.scope_id = $1::text AND e.replay_key = $2::text AND e.envelope_hash = $3::text AND e.status = 'in_progress'
    AND e.token IS NOT DISTINCT FROM $4::text AND e.fencing = $5::bigint
    AND (e.expires_at_ms IS NULL OR e.expires_at_ms <= clock.now_ms)
RETURNING e.fencing, e.expires_at_ms, e.due_at_ms;

-- name: effect_renew
-- Moves the expiry of a claim that no other runner took, expired or not, never to an earlier moment.
UPDATE :"schema".lash_effects AS e
SET updated_at_ms = clock.now_ms,
    expires_at_ms = greatest(
        e.expires_at_ms, least(clock.now_ms, 9223372036854775807 - $6::bigint) + $6::bigint
    )
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
WHERE e.scope_id = $1::text AND e.replay_key = $2::text AND e.envelope_hash = $3::text AND e.token = $4::text
    AND e.fencing = $5::bigint AND e.status = 'in_progress'
RETURNING e.fencing, e.expires_at_ms, e.due_at_ms;

-- name: effect_finish
-- Records the outcome of an effect under a claim that no other runner took, expired or not, with its rank in its group,
-- and counts it in the group.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- The effect is locked before its group, as in every statement; the guard is evaluated under the lock.
held AS (
    SELECT e.scope_id, e.replay_key, e.group_key
    FROM :"schema".lash_effects AS e
    WHERE e.scope_id = $1::text AND e.replay_key = $2::text AND e.envelope_hash = $3::text AND e.token = $4::text
        AND e.fencing = $5::bigint AND e.status = 'in_progress'
        -- A group that was retired while this effect ran can rank nothing.
        AND (e.group_key IS NULL OR EXISTS (
            SELECT 1 FROM :"schema".lash_effect_groups AS g
            WHERE g.scope_id = e.scope_id AND g.group_key = e.group_key
        ))
    FOR NO KEY UPDATE OF e
),
ranked AS (
    UPDATE :"schema".lash_effect_groups AS g
    SET settled = g.settled + 1
    FROM held
    WHERE g.scope_id = held.scope_id AND g.group_key = held.group_key
    RETURNING g.settled
)
UPDATE :"schema".lash_effects AS e
SET status = $6::text, outcome = $7::text, error = $8::text, expires_at_ms = NULL, updated_at_ms = clock.now_ms,
    settled_rank = ranked.settled
FROM clock, held
LEFT JOIN ranked ON true
WHERE e.scope_id = held.scope_id AND e.replay_key = held.replay_key
RETURNING e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id,
    e.incarnation_id, e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank, e.created_at_ms,
    e.updated_at_ms, e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent;

-- name: effect_release
-- Releases a claim, expired or not, unless another runner has taken the effect over; the fencing number stays.
UPDATE :"schema".lash_effects AS e
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, expires_at_ms = NULL,
    updated_at_ms = :"schema".lash_now_ms()
WHERE e.scope_id = $1::text AND e.replay_key = $2::text AND e.envelope_hash = $3::text AND e.token = $4::text
    AND e.fencing = $5::bigint AND e.status = 'in_progress'
RETURNING true;

-- name: effect_record
-- Records the effect of scope $1 and key $2 under the live lease of its session $3 or its process $4, unless its key
-- has a record, and counts it in its group $5, which must have room. Returns the time, until when it sleeps and its
-- rank in the group, or no row.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Locked until the end of the statement, so that no other holder can acquire the lease meanwhile.
session AS (
    SELECT l.session_key
    FROM clock, :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = $3::text AND l.owner_id = $6::text AND l.incarnation_id = $7::text AND l.token = $8::text
        AND l.fencing = $9::bigint AND l.expires_at_ms > clock.now_ms
    FOR SHARE OF l
),
process AS (
    SELECT l.process_key
    FROM clock, :"schema".lash_processes AS p
    JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
    WHERE p.process_id = $4::text AND l.owner_id = $6::text AND l.incarnation_id = $7::text AND l.token = $8::text
        AND l.fencing = $9::bigint AND l.expires_at_ms > clock.now_ms
    FOR SHARE OF l
),
owner AS (
    SELECT session.session_key, NULL::bigint AS process_key FROM session
    UNION ALL
    SELECT NULL::bigint, process.process_key FROM process
),
room AS (
    SELECT g.size, g.members, g.settled
    FROM :"schema".lash_effect_groups AS g
    WHERE g.scope_id = $1::text AND g.group_key = $5::text
    FOR NO KEY UPDATE
),
recorded AS (
    INSERT INTO :"schema".lash_effects AS e (
        scope_id, replay_key, session_key, process_key, envelope, envelope_hash, status, outcome, error, once, fencing,
        due_at_ms, group_key, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker,
        traceparent
    )
    SELECT
        $1::text, $2::text, owner.session_key, owner.process_key, $10::text, $11::text, $12::text, $13::text, $14::text,
        false, 0, coalesce($16::bigint, least(clock.now_ms, 9223372036854775807 - $15::bigint) + $15::bigint),
        $5::text, (SELECT room.settled + 1 FROM room), clock.now_ms, clock.now_ms, clock.now_ms - $17::bigint,
        $18::integer, $19::integer, $6::text, $20::text
    FROM clock, owner
    WHERE $5::text IS NULL OR EXISTS (SELECT 1 FROM room WHERE room.members < room.size)
    ON CONFLICT (scope_id, replay_key) DO NOTHING
    RETURNING e.created_at_ms, e.due_at_ms, e.settled_rank
),
joined AS (
    UPDATE :"schema".lash_effect_groups AS g
    SET members = g.members + 1, settled = g.settled + 1
    FROM recorded
    WHERE g.scope_id = $1::text AND g.group_key = $5::text
)
SELECT created_at_ms, due_at_ms, settled_rank FROM recorded;

-- name: effect_record_by_key
-- Records an effect without a group of the process with key $1, under the live lease of the process, unless the key of
-- the effect has a record: the work of effect_record in fewer steps, with the same columns in the result.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Locked until the end of the statement, so that no other holder can acquire the lease meanwhile.
held AS (
    SELECT l.process_key, clock.now_ms
    FROM clock, :"schema".lash_process_leases AS l
    WHERE l.process_key = $1::bigint AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text
        AND l.fencing = $5::bigint AND l.expires_at_ms > clock.now_ms
    FOR SHARE OF l
)
INSERT INTO :"schema".lash_effects AS e (
    scope_id, replay_key, process_key, envelope, envelope_hash, status, outcome, error, once, fencing, due_at_ms,
    created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker, traceparent
)
SELECT
    $6::text, $7::text, held.process_key, $8::text, $9::text, $10::text, $11::text, $12::text, false, 0,
    coalesce($14::bigint, least(held.now_ms, 9223372036854775807 - $13::bigint) + $13::bigint), held.now_ms, held.now_ms,
    held.now_ms - $15::bigint, $16::integer, $17::integer, $2::text, $18::text
FROM held
ON CONFLICT (scope_id, replay_key) DO NOTHING
RETURNING e.created_at_ms, e.due_at_ms, e.settled_rank;

-- name: effect_record_in_process
-- Records effects of processes, at most 32 and none of them in a group, in one statement: each under the live lease of
-- its process, unless its key has a record. Returns which were recorded, the time, and until when they sleep. The LIMIT
-- keeps the estimate of the planner low.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
asked AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::integer[],
        $17::integer[], $18::text[]
    ) AS a (
        scope_id, replay_key, process_id, owner_id, incarnation_id, token, fencing, envelope, envelope_hash, status,
        outcome, error, duration_ms, until_ms, took_ms, attempt, tries, traceparent
    )
    LIMIT 32
),
-- Locked until the end of the statement, so that no other holder can acquire a lease meanwhile.
held AS (
    SELECT a.*, l.process_key, clock.now_ms
    FROM clock, asked AS a
    JOIN :"schema".lash_processes AS p ON p.process_id = a.process_id
    JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
    WHERE l.owner_id = a.owner_id AND l.incarnation_id = a.incarnation_id AND l.token = a.token
        AND l.fencing = a.fencing AND l.expires_at_ms > clock.now_ms
    ORDER BY l.process_key
    FOR SHARE OF l
)
INSERT INTO :"schema".lash_effects AS e (
    scope_id, replay_key, process_key, envelope, envelope_hash, status, outcome, error, once, fencing, due_at_ms,
    created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker, traceparent
)
SELECT
    h.scope_id, h.replay_key, h.process_key, h.envelope, h.envelope_hash, h.status, h.outcome, h.error, false, 0,
    coalesce(h.until_ms, least(h.now_ms, 9223372036854775807 - h.duration_ms) + h.duration_ms), h.now_ms, h.now_ms,
    h.now_ms - h.took_ms, h.attempt, h.tries, h.owner_id, h.traceparent
FROM held AS h
ON CONFLICT (scope_id, replay_key) DO NOTHING
RETURNING e.scope_id, e.replay_key, e.created_at_ms, e.due_at_ms;

-- name: effect_retire
-- Deletes the effects and then the groups of a scope; returns how many effects there were.
WITH gone AS (
    DELETE FROM :"schema".lash_effects AS e WHERE e.scope_id = $1::text RETURNING 1
),
counted AS (SELECT count(*) AS number FROM gone),
groups AS (
    DELETE FROM :"schema".lash_effect_groups AS g USING counted WHERE g.scope_id = $1::text AND counted.number >= 0
)
SELECT number FROM counted;

-- name: effect_open_group
-- Opens a group for $5 effects, unless its key is taken; no row if it is, or if the session $3 or process $4 does not
-- exist.
WITH session AS (
    SELECT s.session_key FROM :"schema".lash_sessions AS s WHERE s.session_id = $3::text FOR KEY SHARE
),
process AS (
    SELECT p.process_key FROM :"schema".lash_processes AS p WHERE p.process_id = $4::text FOR KEY SHARE
),
owner AS (
    SELECT session.session_key, NULL::bigint AS process_key FROM session
    UNION ALL
    SELECT NULL::bigint, process.process_key FROM process
    UNION ALL
    SELECT NULL::bigint, NULL::bigint WHERE $3::text IS NULL AND $4::text IS NULL
)
INSERT INTO :"schema".lash_effect_groups (scope_id, group_key, session_key, process_key, size, created_at_ms)
SELECT $1::text, $2::text, owner.session_key, owner.process_key, $5::bigint, :"schema".lash_now_ms()
FROM owner
ON CONFLICT (scope_id, group_key) DO NOTHING
RETURNING true;

-- name: effect_group
-- One group, and its finished effects in the order in which they finished.
SELECT
    row(g.size, g.members, g.settled),
    array(
        SELECT e.replay_key
        FROM :"schema".lash_effects AS e
        WHERE e.scope_id = g.scope_id AND e.group_key = g.group_key AND e.settled_rank IS NOT NULL
        ORDER BY e.settled_rank
    )
FROM :"schema".lash_effect_groups AS g
WHERE g.scope_id = $1::text AND g.group_key = $2::text;
