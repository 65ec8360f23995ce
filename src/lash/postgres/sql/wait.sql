-- name: wait_secret
-- The secret that signs the keys of waits.
SELECT secret FROM :"schema".lash_secrets WHERE name = 'waits';

-- name: wait_keep_secret
-- Stores a secret unless there is one.
INSERT INTO :"schema".lash_secrets (name, secret, created_at_ms)
VALUES ('waits', $1::bytea, :"schema".lash_now_ms())
ON CONFLICT (name) DO NOTHING
RETURNING true;

-- name: wait_session_life
-- The life of a session (a new session of the same id has another), and how often its keys were revoked.
SELECT session_key, wait_revocations FROM :"schema".lash_sessions WHERE session_id = $1::text;

-- name: wait_process_life
-- The life of a process: a new process of the same id has another.
SELECT process_key FROM :"schema".lash_processes WHERE process_id = $1::text;

-- name: wait_open
-- Opens a wait, with the deadline $8 from now unless it has one or is resolved. The owner must be the owner of the key,
-- and the key not revoked. Returns the time, whether that holds, whether something was written, and the wait; no wait
-- if a concurrent statement wrote it.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- The locks keep out a revocation and the removal of the owner, and nothing else.
session AS (
    SELECT s.session_key FROM :"schema".lash_sessions AS s
    WHERE s.session_key = $5::bigint AND s.wait_revocations = $6::bigint
    FOR KEY SHARE
),
process AS (
    SELECT p.process_key FROM :"schema".lash_processes AS p WHERE p.process_key = $7::bigint FOR KEY SHARE
),
owner AS (
    SELECT ($5::bigint IS NULL OR EXISTS (SELECT 1 FROM session))
        AND ($7::bigint IS NULL OR EXISTS (SELECT 1 FROM process)) AS lives
),
written AS (
    INSERT INTO :"schema".lash_waits AS w (
        key_id, scope_id, scope, identity, session_key, process_key, deadline_ms, ask, created_at_ms
    )
    SELECT
        $1::text, $2::text, $3::text, $4::text, $5::bigint, $7::bigint,
        least(clock.now_ms, 9223372036854775807 - $8::bigint) + $8::bigint, $9::text, clock.now_ms
    FROM clock, owner
    WHERE owner.lives
    ON CONFLICT (key_id) DO UPDATE
    SET deadline_ms = coalesce(w.deadline_ms, excluded.deadline_ms), ask = coalesce(w.ask, excluded.ask)
    WHERE w.resolution IS NULL
        AND (w.deadline_ms IS NULL AND excluded.deadline_ms IS NOT NULL OR w.ask IS NULL AND excluded.ask IS NOT NULL)
    RETURNING w.*
),
standing AS (
    SELECT * FROM written
    UNION ALL
    SELECT w.* FROM :"schema".lash_waits AS w, owner
    WHERE w.key_id = $1::text AND owner.lives AND NOT EXISTS (SELECT 1 FROM written)
)
SELECT
    clock.now_ms,
    owner.lives,
    EXISTS (SELECT 1 FROM written),
    (
        SELECT row(
            s.key_id, s.scope, s.identity, s.deadline_ms, s.resolution, s.created_at_ms, s.resolved_at_ms, s.ask
        ) FROM standing AS s
    )
FROM clock, owner;

-- name: wait_resolve
-- Resolves a wait, opened or not, unless it is resolved; the owner must be the owner of the key, and the key not
-- revoked. Returns the columns of wait_open.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
session AS (
    SELECT s.session_key FROM :"schema".lash_sessions AS s
    WHERE s.session_key = $5::bigint AND s.wait_revocations = $6::bigint
    FOR KEY SHARE
),
process AS (
    SELECT p.process_key FROM :"schema".lash_processes AS p WHERE p.process_key = $7::bigint FOR KEY SHARE
),
owner AS (
    SELECT ($5::bigint IS NULL OR EXISTS (SELECT 1 FROM session))
        AND ($7::bigint IS NULL OR EXISTS (SELECT 1 FROM process)) AS lives
),
written AS (
    INSERT INTO :"schema".lash_waits AS w (
        key_id, scope_id, scope, identity, session_key, process_key, resolution, created_at_ms, resolved_at_ms
    )
    SELECT
        $1::text, $2::text, $3::text, $4::text, $5::bigint, $7::bigint, $8::text, clock.now_ms, clock.now_ms
    FROM clock, owner
    WHERE owner.lives
    ON CONFLICT (key_id) DO UPDATE SET resolution = excluded.resolution, resolved_at_ms = excluded.resolved_at_ms
    WHERE w.resolution IS NULL AND (w.ask IS NULL OR $9::boolean)
    RETURNING w.*
),
-- A process that waits gets one more reason to run; wait_expire does the same.
woken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET wake_seq = l.wake_seq + 1, ready_at_ms = least(l.ready_at_ms, clock.now_ms)
    FROM clock, written
    WHERE l.process_key = written.process_key AND l.runnable
),
standing AS (
    SELECT * FROM written
    UNION ALL
    SELECT w.* FROM :"schema".lash_waits AS w, owner
    WHERE w.key_id = $1::text AND owner.lives AND NOT EXISTS (SELECT 1 FROM written)
)
SELECT
    clock.now_ms,
    owner.lives,
    EXISTS (SELECT 1 FROM written),
    (
        SELECT row(
            s.key_id, s.scope, s.identity, s.deadline_ms, s.resolution, s.created_at_ms, s.resolved_at_ms, s.ask
        ) FROM standing AS s
    )
FROM clock, owner;

-- name: wait_row
-- One wait.
SELECT key_id, scope, identity, deadline_ms, resolution, created_at_ms, resolved_at_ms, ask
FROM :"schema".lash_waits
WHERE key_id = $1::text;

-- name: wait_states
-- The states of some waits, and whether their deadlines have passed.
SELECT w.key_id, w.resolution, w.resolution IS NULL AND coalesce(w.deadline_ms <= clock.now_ms, false)
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
JOIN :"schema".lash_waits AS w ON w.key_id = ANY ($1::text[]);

-- name: wait_expire
-- Resolves waits whose deadline has passed, the earliest first: those of $3, or any if $3 is null; at most $2. Returns
-- how many.
WITH clock AS MATERIALIZED (SELECT :"schema".lash_now_ms() AS now_ms),
due AS (
    SELECT w.key_id
    FROM :"schema".lash_waits AS w
    WHERE w.resolution IS NULL AND w.deadline_ms <= (SELECT now_ms FROM clock)
        AND ($3::text[] IS NULL OR w.key_id = ANY ($3::text[]))
    ORDER BY w.deadline_ms
    LIMIT $2::bigint
    FOR NO KEY UPDATE SKIP LOCKED
),
written AS (
    UPDATE :"schema".lash_waits AS w
    SET resolution = $1::text, resolved_at_ms = clock.now_ms
    FROM clock, due
    WHERE w.key_id = due.key_id
    RETURNING w.process_key
),
-- A process that waits gets one more reason to run; wait_resolve does the same.
woken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET wake_seq = l.wake_seq + 1, ready_at_ms = least(l.ready_at_ms, clock.now_ms)
    FROM clock
    WHERE l.process_key IN (SELECT written.process_key FROM written) AND l.runnable
)
SELECT count(*) FROM written;

-- name: wait_lock_session
-- Locks a session, so that no wait of it is opened or resolved meanwhile.
SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text FOR UPDATE;

-- name: wait_revoke
-- Makes every key of a session unknown.
UPDATE :"schema".lash_sessions SET wait_revocations = wait_revocations + 1 WHERE session_key = $1::bigint;

-- name: wait_drop_session
-- Removes the waits of a session whose keys are revoked.
DELETE FROM :"schema".lash_waits WHERE session_key = $1::bigint;

-- name: wait_pending
-- Open waits, by the ids of their keys.
SELECT key_id, scope, identity, deadline_ms, resolution, created_at_ms, resolved_at_ms, ask
FROM :"schema".lash_waits
WHERE resolution IS NULL AND key_id > $1::text
ORDER BY key_id
LIMIT $2::bigint;

-- name: wait_pending_in_scope
-- Open waits of one scope, by the ids of their keys.
SELECT key_id, scope, identity, deadline_ms, resolution, created_at_ms, resolved_at_ms, ask
FROM :"schema".lash_waits
WHERE resolution IS NULL AND scope_id = $3::text AND key_id > $1::text
ORDER BY key_id
LIMIT $2::bigint;

-- name: wait_prune
-- Removes waits of operations that were resolved before a moment, and returns how many.
WITH chosen AS (
    SELECT w.key_id
    FROM :"schema".lash_waits AS w
    WHERE w.session_key IS NULL AND w.process_key IS NULL AND w.resolved_at_ms < $1::bigint
    ORDER BY w.resolved_at_ms
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM :"schema".lash_waits AS w USING chosen WHERE w.key_id = chosen.key_id RETURNING 1)
SELECT count(*) FROM gone;
