-- name: erase_lock
-- Locks a session's lease row and then its own, in the order of commits, so that its graph does not change until the
-- transaction ends. Returns the time, the session, its revision, its retention and the lease.
WITH lease AS (
    SELECT l.*
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = $1::text
    FOR NO KEY UPDATE OF l
)
SELECT
    :"schema".lash_now_ms(), s.session_key, s.revision, s.keep_checkpoints,
    row(
        lease.fencing, lease.owner_id, lease.incarnation_id, lease.process, lease.token, lease.claimed_at_ms,
        lease.expires_at_ms
    )
FROM lease
JOIN :"schema".lash_sessions AS s ON s.session_key = lease.session_key
FOR NO KEY UPDATE OF s;

-- name: erase_found
-- The nodes of a session among some ids that are live and not erased, and whether each is a user message.
SELECT node_id, user_message
FROM :"schema".lash_nodes
WHERE session_key = $1::bigint AND node_id = ANY ($2::text[]) AND tombstoned_at_ms IS NULL AND kind <> 'erased';

-- name: erase_nodes
-- Replaces the content of nodes by an empty body.
UPDATE :"schema".lash_nodes
SET body = $3::text, packed = NULL, kind = 'erased', user_message = false
WHERE session_key = $1::bigint AND node_id = ANY ($2::text[]);

-- name: erase_head
-- Publishes a revision ($2) whose graph has fewer user messages ($3), with the checkpoint of the one before; everything
-- else stays.
WITH checkpoint AS (
    INSERT INTO :"schema".lash_checkpoints (
        session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision
    )
    SELECT session_key, $2::bigint, checkpoint_ref, turn_state, plugin_snapshot_revision
    FROM :"schema".lash_checkpoints
    WHERE session_key = $1::bigint AND revision = $2::bigint - 1
)
UPDATE :"schema".lash_sessions
SET revision = $2::bigint, user_message_count = user_message_count - $3::bigint,
    first_user_message = CASE WHEN $3::bigint > 0 THEN $4::text ELSE first_user_message END,
    updated_at_ms = :"schema".lash_now_ms(), changed_xid = pg_current_xact_id()
WHERE session_key = $1::bigint;
