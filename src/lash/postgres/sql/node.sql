-- name: node_one
-- One live node by its id, or none; no row if there is no session.
SELECT
    s.session_key,
    array(
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body)
        FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.node_id = $2::text AND n.tombstoned_at_ms IS NULL
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: node_path_ids
-- The ids of the nodes on the active path of a session.
WITH RECURSIVE climb AS (
    SELECT session_key, leaf_segment AS segment, leaf_depth AS ceiling
    FROM :"schema".lash_sessions
    WHERE session_key = $1::bigint AND leaf_segment IS NOT NULL
    UNION ALL
    SELECT c.session_key, g.parent_segment, g.parent_depth
    FROM climb AS c
    JOIN :"schema".lash_segments AS g ON g.session_key = c.session_key AND g.segment = c.segment
    WHERE g.parent_segment IS NOT NULL
)
SELECT n.node_id
FROM climb AS c
JOIN :"schema".lash_nodes AS n ON n.session_key = c.session_key AND n.segment = c.segment AND n.depth <= c.ceiling;

-- name: node_lock_session
-- Holds the row of a session, so that its graph stays as it is until the transaction ends.
SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text FOR NO KEY UPDATE;

-- name: node_tombstone
-- Marks nodes as removed.
UPDATE :"schema".lash_nodes
SET tombstoned_at_ms = :"schema".lash_now_ms()
WHERE session_key = $1::bigint AND tombstoned_at_ms IS NULL AND node_id = ANY ($2::text[]);

-- name: node_first_user
-- The first live message of a user, in the order of insertion.
SELECT node_id, parent_node_id, depth, false, body
FROM :"schema".lash_nodes
WHERE session_key = $1::bigint AND tombstoned_at_ms IS NULL AND user_message
ORDER BY seq
LIMIT 1;

-- name: node_recount
-- Counts the live nodes and user messages of a session again after some were removed.
UPDATE :"schema".lash_sessions
SET (node_count, user_message_count) = (
        SELECT count(*), count(*) FILTER (WHERE user_message)
        FROM :"schema".lash_nodes
        WHERE session_key = $1::bigint AND tombstoned_at_ms IS NULL
    ),
    first_user_message = $2::text
WHERE session_key = $1::bigint;

-- name: node_vacuum
-- Deletes the removed nodes of one session for good, and counts them; no row if there is no session.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text),
gone AS (
    DELETE FROM :"schema".lash_nodes AS n
    USING s
    WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NOT NULL
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone) FROM s;
