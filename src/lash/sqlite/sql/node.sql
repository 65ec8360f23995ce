-- name: node_stored
-- The stored ones among some node ids (a JSON array), as a writer sees them. CROSS JOIN makes SQLite look each id up
-- instead of reading the whole graph.
SELECT
    n.node_id, n.parent_node_id, n.segment, n.depth,
    NOT EXISTS (
        SELECT 1 FROM lash_nodes AS f
        WHERE f.session_key = n.session_key AND f.segment = n.segment AND f.depth = n.depth + 1
    ),
    n.tombstoned_at_ms IS NOT NULL, n.body
FROM json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.node_id = wanted.value;

-- name: node_one
-- One live node by its id.
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body
FROM lash_sessions AS s
JOIN lash_nodes AS n ON n.session_key = s.session_key
WHERE s.session_id = :session_id AND n.node_id = :node_id AND n.tombstoned_at_ms IS NULL;

-- name: node_all
-- Every live node of a session, in the order of insertion.
SELECT node_id, parent_node_id, depth, 0, body
FROM lash_nodes
WHERE session_key = :session_key AND tombstoned_at_ms IS NULL
ORDER BY seq;

-- name: node_path
-- The nodes from the root to one node, or only the last of them: a climb over segments, a range on each.
WITH RECURSIVE leaf (segment, depth) AS (
    SELECT segment, depth FROM lash_nodes WHERE session_key = :session_key AND node_id = :leaf_node_id
),
climb (segment, ceiling) AS (
    SELECT segment, depth FROM leaf
    UNION ALL
    SELECT s.parent_segment, s.parent_depth
    FROM climb AS c
    JOIN lash_segments AS s ON s.session_key = :session_key AND s.segment = c.segment
    WHERE s.parent_segment IS NOT NULL AND s.parent_depth > (SELECT depth FROM leaf) - :last
)
SELECT n.node_id, n.parent_node_id, n.depth, n.tombstoned_at_ms IS NOT NULL, n.body
FROM climb AS c
CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.segment = c.segment
    AND n.depth <= c.ceiling AND n.depth > (SELECT depth FROM leaf) - :last
ORDER BY n.depth;

-- name: node_path_ids
-- The ids of the nodes on the active path of a session.
WITH RECURSIVE climb (segment, ceiling) AS (
    SELECT leaf_segment, leaf_depth FROM lash_sessions
    WHERE session_key = :session_key AND leaf_segment IS NOT NULL
    UNION ALL
    SELECT s.parent_segment, s.parent_depth
    FROM climb AS c
    JOIN lash_segments AS s ON s.session_key = :session_key AND s.segment = c.segment
    WHERE s.parent_segment IS NOT NULL
)
SELECT n.node_id
FROM climb AS c
CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.segment = c.segment AND n.depth <= c.ceiling;

-- name: node_tombstone
-- Marks nodes (a JSON array of ids) as removed.
UPDATE lash_nodes
SET tombstoned_at_ms = :now_ms
WHERE session_key = :session_key AND tombstoned_at_ms IS NULL
    AND node_id IN (SELECT value FROM json_each(:node_ids));

-- name: node_recount
-- Counts the live nodes and user messages of a session again after some were removed.
UPDATE lash_sessions
SET node_count = (
        SELECT COUNT(*) FROM lash_nodes WHERE session_key = :session_key AND tombstoned_at_ms IS NULL
    ),
    user_message_count = (
        SELECT COUNT(*) FROM lash_nodes
        WHERE session_key = :session_key AND tombstoned_at_ms IS NULL AND user_message = 1
    ),
    first_user_message = :first_user_message
WHERE session_key = :session_key;

-- name: node_first_user
-- The first live message of a user, in the order of insertion.
SELECT node_id, parent_node_id, depth, 0, body
FROM lash_nodes
WHERE session_key = :session_key AND tombstoned_at_ms IS NULL AND user_message = 1
ORDER BY seq
LIMIT 1;

-- name: node_vacuum
-- Deletes the removed nodes of one session for good.
DELETE FROM lash_nodes
WHERE tombstoned_at_ms IS NOT NULL
    AND session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id);
