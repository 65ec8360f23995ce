-- name: session_changes
-- The epoch of the feed, whether it has the change that a cursor names or a later one of the same session, and no
-- running transactions: there is one writer at a time.
SELECT
    COALESCE((SELECT epoch FROM lash_process_change_epoch WHERE one = 1), ''),
    EXISTS (SELECT 1 FROM lash_sessions WHERE session_id = :session_id AND changed >= :number)
    OR EXISTS (SELECT 1 FROM lash_session_ids WHERE session_id = :session_id AND changed >= :number);

-- fragment: changed_session
-- The columns of a session in the feed.
SELECT
    session_key, session_id, name, created_at_ms, model, cwd, relation, revision, first_user_message,
    user_message_count, updated_at_ms, owner, labels, metadata, expires_at_ms, agent, keep_checkpoints, changed

-- name: session_changes_unnumbered
-- Sessions without a change since they were moved here, after an id. They come before all others. Unary plus: not by the
-- index of changes, which would sort all of them for each page.
-- include: changed_session
FROM lash_sessions
WHERE +changed = 0 AND session_id > :session_id
ORDER BY session_id
LIMIT :limit;

-- name: session_changes_after
-- Sessions whose last change has a higher number.
-- include: changed_session
FROM lash_sessions INDEXED BY lash_sessions_changed
WHERE changed > :number
ORDER BY changed
LIMIT :limit;

-- name: session_changes_deleted
-- Deletions with a higher number.
SELECT session_id, revision, changed
FROM lash_session_ids INDEXED BY lash_session_ids_changed
WHERE changed > :number AND changed > 0 AND deleted_at_ms IS NOT NULL
ORDER BY changed
LIMIT :limit;

-- name: session_changes_end
-- The last change of the feed, and its epoch.
SELECT COALESCE((SELECT epoch FROM lash_process_change_epoch WHERE one = 1), ''), number, session_id
FROM (
    SELECT * FROM (
        SELECT changed AS number, session_id
        FROM lash_sessions INDEXED BY lash_sessions_changed
        WHERE changed > 0
        ORDER BY changed DESC
        LIMIT 1
    )
    UNION ALL
    SELECT * FROM (
        SELECT changed, session_id
        FROM lash_session_ids INDEXED BY lash_session_ids_changed
        WHERE changed > 0 AND deleted_at_ms IS NOT NULL
        ORDER BY changed DESC
        LIMIT 1
    )
    UNION ALL
    SELECT 0, COALESCE((SELECT MAX(session_id) FROM lash_sessions), '')
)
ORDER BY number DESC
LIMIT 1;
