-- name: grant_upsert
-- Lets a scope see a process.
INSERT INTO lash_grants (session_id, frame_id, process_key, kind, label)
VALUES (:session_id, :frame_id, :process_key, :kind, :label)
ON CONFLICT (session_id, frame_id, process_key) DO UPDATE SET kind = excluded.kind, label = excluded.label;

-- name: grant_revoke
-- Removes a grant.
DELETE FROM lash_grants
WHERE session_id = :session_id AND frame_id = :frame_id
    AND process_key = (SELECT process_key FROM lash_processes WHERE process_id = :process_id);

-- name: grant_one
-- One grant.
SELECT g.session_id, g.frame_id, p.process_id, g.kind, g.label
FROM lash_processes AS p
JOIN lash_grants AS g ON g.process_key = p.process_key
WHERE p.process_id = :process_id AND g.session_id = :session_id AND g.frame_id = :frame_id;

-- name: grant_page
-- The grants of one scope, ordered by process id.
SELECT
    g.session_id, g.frame_id, p.process_id, g.kind, g.label,
    p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
    p.last_sequence, p.created_at_ms, p.updated_at_ms
FROM lash_grants AS g
CROSS JOIN lash_processes AS p ON p.process_key = g.process_key
WHERE g.session_id = :session_id AND g.frame_id = :frame_id AND (NOT :live_only OR p.status = 'running')
ORDER BY p.process_id;

-- name: grant_of_process
-- The grants of a process.
SELECT g.session_id, g.frame_id, p.process_id, g.kind, g.label
FROM lash_processes AS p
JOIN lash_grants AS g ON g.process_key = p.process_key
WHERE p.process_id = :process_id
ORDER BY g.session_id, g.frame_id;

-- name: grant_detached
-- The running processes that a session may see, and whether another session may see them too.
SELECT DISTINCT
    p.process_id,
    EXISTS (SELECT 1 FROM lash_grants AS o WHERE o.process_key = g.process_key AND o.session_id <> :session_id)
FROM lash_grants AS g
CROSS JOIN lash_processes AS p ON p.process_key = g.process_key
WHERE g.session_id = :session_id AND p.status = 'running';

-- name: grant_revoke_session
-- Removes all grants of a session.
DELETE FROM lash_grants WHERE session_id = :session_id;

-- name: grant_clear_wake_target
-- Clears the session as the wake target of all processes.
UPDATE lash_processes
SET wake_session_id = NULL, updated_at_ms = :now_ms
WHERE wake_session_id = :session_id
RETURNING process_id;
