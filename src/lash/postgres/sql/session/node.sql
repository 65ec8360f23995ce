-- name: node_one
-- One live node by its id, own or inherited, or none; no row if the session does not exist.
SELECT
    s.session_key,
    array(
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
        FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.node_id = $2::text AND n.tombstoned_at_ms IS NULL
        UNION ALL
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
        FROM :"schema".lash_inherited AS i
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n WHERE n.session_key = i.owner_key AND n.node_id = $2::text OFFSET 0
        ) AS n
        WHERE i.session_key = s.session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
            AND n.tombstoned_at_ms IS NULL
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: node_held
-- Those of some nodes that cannot be removed, and why: they lie on the active path of the session (path), it inherits
-- them (source), or a fork inherits them from it (fork).
WITH RECURSIVE climb AS (
    SELECT session_key, leaf_segment AS segment, leaf_depth AS ceiling
    FROM :"schema".lash_sessions
    WHERE session_key = $1::bigint AND leaf_segment IS NOT NULL
    UNION ALL
    SELECT c.session_key, g.parent_segment, g.parent_depth
    FROM climb AS c
    JOIN :"schema".lash_segments AS g ON g.session_key = c.session_key AND g.segment = c.segment
    WHERE g.parent_segment IS NOT NULL
),
held AS (
    SELECT 'path' AS holder, session_key, segment, -1 AS floor, ceiling FROM climb
    UNION ALL
    SELECT 'source', owner_key, segment, floor, ceiling
    FROM :"schema".lash_inherited WHERE session_key = $1::bigint
    UNION ALL
    SELECT 'fork', owner_key, segment, floor, ceiling
    FROM :"schema".lash_inherited WHERE owner_key = $1::bigint
)
SELECT n.node_id, min(h.holder)
FROM held AS h
JOIN :"schema".lash_nodes AS n ON n.session_key = h.session_key AND n.node_id = ANY ($2::text[])
WHERE n.segment = h.segment AND n.depth > h.floor AND n.depth <= h.ceiling
GROUP BY n.node_id
ORDER BY n.node_id;

-- name: node_lock_session
-- Locks the row of a session, so that its graph does not change until the transaction ends.
SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text FOR NO KEY UPDATE;

-- name: node_tombstone
-- Marks nodes as removed.
UPDATE :"schema".lash_nodes
SET tombstoned_at_ms = :"schema".lash_now_ms()
WHERE session_key = $1::bigint AND tombstoned_at_ms IS NULL AND node_id = ANY ($2::text[]);

-- name: node_first_user
-- The first live user message that a session sees: an inherited one, or else the one inserted first.
SELECT node_id, parent_node_id, depth, false, body, packed
FROM (
    SELECT true AS own, seq AS place, node_id, parent_node_id, depth, body, packed
    FROM :"schema".lash_nodes
    WHERE session_key = $1::bigint AND tombstoned_at_ms IS NULL AND user_message
    UNION ALL
    SELECT false, n.depth, n.node_id, n.parent_node_id, n.depth, n.body, n.packed
    FROM :"schema".lash_inherited AS i
    JOIN :"schema".lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
        AND n.depth > i.floor AND n.depth <= i.ceiling
    WHERE i.session_key = $1::bigint AND n.user_message
) AS said
ORDER BY own, place
LIMIT 1;

-- name: node_recount
-- Counts the live nodes and user messages that a session sees, its own and the inherited ones.
UPDATE :"schema".lash_sessions
SET (node_count, user_message_count) = (
        SELECT count(*), count(*) FILTER (WHERE user_message)
        FROM (
            SELECT user_message
            FROM :"schema".lash_nodes
            WHERE session_key = $1::bigint AND tombstoned_at_ms IS NULL
            UNION ALL
            SELECT n.user_message
            FROM :"schema".lash_inherited AS i
            JOIN :"schema".lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
                AND n.depth > i.floor AND n.depth <= i.ceiling
            WHERE i.session_key = $1::bigint
        ) AS seen
    ),
    first_user_message = $2::text
WHERE session_key = $1::bigint;

-- name: node_removed_count
-- Counts the removed nodes of one session; no row if the session does not exist.
SELECT (
    SELECT count(*)
    FROM :"schema".lash_nodes AS n
    WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NOT NULL
)
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: node_vacuum
-- Deletes the removed nodes of one session permanently, and counts them; no row if the session does not exist. Their
-- segments are closed, so that their positions are not used again.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text),
gone AS (
    DELETE FROM :"schema".lash_nodes AS n
    USING s
    WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NOT NULL
    RETURNING n.session_key, n.segment
),
closed AS (
    UPDATE :"schema".lash_segments AS g
    SET closed = true
    FROM (SELECT DISTINCT session_key, segment FROM gone) AS touched
    WHERE g.session_key = touched.session_key AND g.segment = touched.segment AND NOT g.closed
)
SELECT (SELECT count(*) FROM gone) FROM s;
