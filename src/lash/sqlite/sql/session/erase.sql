-- name: erase_found
-- The nodes of a session among some ids (a JSON array) that are live and not erased, and whether each is a user message.
SELECT n.node_id, n.user_message
FROM json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.node_id = wanted.value
WHERE n.tombstoned_at_ms IS NULL AND n.kind <> 'erased';

-- name: erase_nodes
-- Replaces the content of nodes (a JSON array of ids) by an empty body.
UPDATE lash_nodes
SET body = :body, packed = NULL, kind = 'erased', user_message = 0
WHERE session_key = :session_key AND node_id IN (SELECT value FROM json_each(:node_ids));

-- name: erase_head
-- Publishes a revision whose graph has fewer user messages; everything else stays.
UPDATE lash_sessions
SET revision = :revision, user_message_count = user_message_count - :user_messages,
    first_user_message = CASE WHEN :user_messages > 0 THEN :first_user_message ELSE first_user_message END,
    updated_at_ms = :now_ms, changed = 1 + MAX(
        (SELECT COALESCE(MAX(changed), 0) FROM lash_sessions),
        (SELECT COALESCE(MAX(changed), 0) FROM lash_session_ids WHERE changed > 0)
    )
WHERE session_key = :session_key AND revision = :revision - 1;
