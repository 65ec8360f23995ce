-- name: wait_secret
-- The secret that signs the keys of waits.
SELECT secret FROM lash_secrets WHERE name = 'waits';

-- name: wait_keep_secret
-- Stores a secret unless there is one.
INSERT INTO lash_secrets (name, secret, created_at_ms)
VALUES ('waits', :secret, :now_ms)
ON CONFLICT (name) DO NOTHING;

-- name: wait_session_life
-- The life of a session (a new session of the same id has another), and how often its keys were revoked.
SELECT session_key, wait_revocations FROM lash_sessions WHERE session_id = :session_id;

-- name: wait_process_life
-- The life of a process: a new process of the same id has another.
SELECT process_key FROM lash_processes WHERE process_id = :process_id;

-- name: wait_owner_lives
-- Whether the owner of a wait is still the owner of its key, and the key not revoked.
SELECT
    (:session_key IS NULL OR EXISTS (
        SELECT 1 FROM lash_sessions WHERE session_key = :session_key AND wait_revocations = :revocations
    ))
    AND (:process_key IS NULL OR EXISTS (SELECT 1 FROM lash_processes WHERE process_key = :process_key));

-- name: wait_open
-- Opens a wait, with a deadline and a question unless it has them or is resolved.
INSERT INTO lash_waits AS w (
    key_id, scope_id, scope, identity, session_key, process_key, deadline_ms, ask, created_at_ms
)
VALUES (:key_id, :scope_id, :scope, :identity, :session_key, :process_key, :deadline_ms, :ask, :now_ms)
ON CONFLICT (key_id) DO UPDATE
SET deadline_ms = COALESCE(w.deadline_ms, excluded.deadline_ms), ask = COALESCE(w.ask, excluded.ask)
WHERE w.resolution IS NULL
    AND (w.deadline_ms IS NULL AND excluded.deadline_ms IS NOT NULL OR w.ask IS NULL AND excluded.ask IS NOT NULL);

-- name: wait_resolve
-- Resolves a wait, opened or not, unless it is resolved, or unless it asks a question and the answer was not checked.
INSERT INTO lash_waits AS w (
    key_id, scope_id, scope, identity, session_key, process_key, resolution, created_at_ms, resolved_at_ms
)
VALUES (:key_id, :scope_id, :scope, :identity, :session_key, :process_key, :resolution, :now_ms, :now_ms)
ON CONFLICT (key_id) DO UPDATE SET resolution = excluded.resolution, resolved_at_ms = excluded.resolved_at_ms
WHERE w.resolution IS NULL AND (w.ask IS NULL OR :checked);

-- name: wait_note_change
-- Makes waiters in other operating system processes see that something may have changed.
INSERT INTO lash_wait_changes AS c (id, number) VALUES (1, 1)
ON CONFLICT (id) DO UPDATE SET number = c.number + 1;

-- name: wait_row
-- One wait.
SELECT key_id, scope, identity, deadline_ms, resolution, created_at_ms, resolved_at_ms, ask
FROM lash_waits
WHERE key_id = :key_id;

-- name: wait_states
-- The states of some waits, and whether their deadlines have passed.
SELECT w.key_id, w.resolution, w.resolution IS NULL AND COALESCE(w.deadline_ms <= :now_ms, 0)
FROM json_each(:key_ids) AS wanted
CROSS JOIN lash_waits AS w ON w.key_id = wanted.value;

-- name: wait_expire
-- Resolves waits whose deadline has passed, the earliest first: those of key_ids, or any if that is null. Returns their
-- processes.
UPDATE lash_waits SET resolution = :resolution, resolved_at_ms = :now_ms
WHERE key_id IN (
    SELECT key_id FROM lash_waits
    WHERE resolution IS NULL AND deadline_ms <= :now_ms
        AND (:key_ids IS NULL OR key_id IN (SELECT value FROM json_each(:key_ids)))
    ORDER BY deadline_ms
    LIMIT :limit
)
RETURNING process_key;

-- name: wait_revoke
-- Makes every key of a session unknown.
UPDATE lash_sessions SET wait_revocations = wait_revocations + 1 WHERE session_id = :session_id RETURNING session_key;

-- name: wait_drop_session
-- Removes the waits of a session whose keys are revoked.
DELETE FROM lash_waits WHERE session_key = :session_key;

-- name: wait_pending
-- Open waits, by the ids of their keys.
SELECT key_id, scope, identity, deadline_ms, resolution, created_at_ms, resolved_at_ms, ask
FROM lash_waits INDEXED BY lash_waits_pending
WHERE resolution IS NULL AND key_id > :after
ORDER BY key_id
LIMIT :limit;

-- name: wait_pending_in_scope
-- Open waits of one scope, by the ids of their keys.
SELECT key_id, scope, identity, deadline_ms, resolution, created_at_ms, resolved_at_ms, ask
FROM lash_waits INDEXED BY lash_waits_scope
WHERE resolution IS NULL AND scope_id = :scope_id AND key_id > :after
ORDER BY key_id
LIMIT :limit;

-- name: wait_prune
-- Removes waits of operations that were resolved before a moment.
DELETE FROM lash_waits
WHERE key_id IN (
    SELECT key_id FROM lash_waits
    WHERE session_key IS NULL AND process_key IS NULL AND resolved_at_ms < :resolved_before_ms
    ORDER BY resolved_at_ms
    LIMIT :limit
);
