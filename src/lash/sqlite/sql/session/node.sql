-- fragment: inherited
-- The runs that a session inherits, from the last to the first.
inherited (session_key, owner_key, segment, floor, ceiling, next_key) AS (
    SELECT i.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
    FROM lash_inherited AS i
    CROSS JOIN lash_runs AS r ON r.run_key = i.run_key
    WHERE i.session_key = :session_key
    UNION ALL
    SELECT h.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
    FROM inherited AS h
    CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
)

-- name: node_stored
-- The given nodes (a JSON array of ids) that are stored, for writers; inherited ones on segment 0. CROSS JOIN makes
-- SQLite look each id up instead of reading the whole graph.
WITH RECURSIVE
-- include: inherited
SELECT
    n.node_id, n.parent_node_id, n.segment, n.depth,
    NOT EXISTS (
        SELECT 1 FROM lash_nodes AS f
        WHERE f.session_key = n.session_key AND f.segment = n.segment AND f.depth = n.depth + 1
    ) AND NOT EXISTS (
        SELECT 1 FROM lash_segments AS g
        WHERE g.session_key = n.session_key AND g.segment = n.segment AND g.closed
    ),
    n.tombstoned_at_ms IS NOT NULL, n.body, n.packed
FROM json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.node_id = wanted.value
UNION ALL
SELECT
    n.node_id, n.parent_node_id, 0, n.depth,
    NOT EXISTS (
        SELECT 1 FROM lash_inherited AS h
        JOIN lash_runs AS r ON r.run_key = h.run_key
        WHERE h.session_key = :session_key AND r.ceiling > n.depth
    )
    AND NOT EXISTS (
        SELECT 1 FROM lash_nodes AS f
        WHERE f.session_key = :session_key AND f.segment = 0 AND f.depth = n.depth + 1
    ) AND NOT EXISTS (
        SELECT 1 FROM lash_segments AS g WHERE g.session_key = :session_key AND g.segment = 0 AND g.closed
    ),
    n.tombstoned_at_ms IS NOT NULL, n.body, n.packed
FROM inherited AS i
CROSS JOIN json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = wanted.value
WHERE i.session_key = :session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling;

-- name: node_taken
-- A row if a node id of the session is taken by a node of its own.
SELECT 1 FROM lash_nodes WHERE session_key = :session_key AND node_id = :node_id;

-- name: node_one
-- One live node by its id, own or inherited. The limit ends the search at the run that has the node.
WITH RECURSIVE
-- include: inherited
SELECT node_id, parent_node_id, depth, 0, body, packed
FROM lash_nodes
WHERE session_key = :session_key AND node_id = :node_id AND tombstoned_at_ms IS NULL
UNION ALL
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body, n.packed
FROM inherited AS i
CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = :node_id
WHERE i.session_key = :session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
    AND n.tombstoned_at_ms IS NULL
LIMIT 1;

-- name: node_many
-- The live nodes among some ids (a JSON array), own or inherited.
WITH RECURSIVE
-- include: inherited
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body, n.packed
FROM json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.node_id = wanted.value
WHERE n.tombstoned_at_ms IS NULL
UNION ALL
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body, n.packed
FROM inherited AS i
CROSS JOIN json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = wanted.value
WHERE i.session_key = :session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
    AND n.tombstoned_at_ms IS NULL;

-- name: node_place
-- Where a node stands in the order of the whole graph: whether the session owns it, and its number among the nodes that
-- the session owns, or its depth on the inherited path. Removed nodes have a place too.
WITH RECURSIVE
-- include: inherited
SELECT 1, seq FROM lash_nodes WHERE session_key = :session_key AND node_id = :node_id
UNION ALL
SELECT 0, n.depth
FROM inherited AS i
CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = :node_id
WHERE i.session_key = :session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling;

-- name: node_children
-- The live children of a node, after a place: the inherited one, the one that follows it on its segment, and the first
-- nodes of segments.
WITH RECURSIVE
-- include: inherited
, parent (segment, depth) AS (
    SELECT segment, depth FROM lash_nodes
    WHERE session_key = :session_key AND node_id = :node_id AND tombstoned_at_ms IS NULL
    UNION ALL
    SELECT 0, n.depth
    FROM inherited AS i
    CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = :node_id
    WHERE i.session_key = :session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
        AND n.tombstoned_at_ms IS NULL
),
child (own, place, node_key) AS (
    SELECT 0, n.depth, n.rowid
    FROM parent AS p
    CROSS JOIN inherited AS i ON i.session_key = :session_key
    CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment AND n.depth = p.depth + 1
    WHERE p.segment = 0 AND n.depth > i.floor AND n.depth <= i.ceiling AND n.parent_node_id = :node_id
    UNION ALL
    SELECT 1, n.seq, n.rowid
    FROM parent AS p
    CROSS JOIN lash_nodes AS n ON n.session_key = :session_key AND n.segment = p.segment AND n.depth = p.depth + 1
    WHERE n.parent_node_id = :node_id AND n.tombstoned_at_ms IS NULL
    UNION ALL
    SELECT * FROM (
        SELECT 1, n.seq, n.rowid
        FROM parent AS p
        CROSS JOIN lash_nodes AS n INDEXED BY lash_nodes_branch ON n.session_key = :session_key
            AND n.parent_node_id = :node_id AND n.begins_branch = 1
        WHERE n.tombstoned_at_ms IS NULL AND n.seq > CASE WHEN :own THEN :place ELSE -1 END
        ORDER BY n.seq
        LIMIT :limit
    )
)
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body, n.packed
FROM child AS c
CROSS JOIN lash_nodes AS n ON n.rowid = c.node_key
WHERE (c.own, c.place) > (:own, :place)
ORDER BY c.own, c.place
LIMIT :limit;

-- name: node_list
-- The live nodes of one kind, after a place: the inherited ones along their path, then the own ones in the order of
-- insertion.
WITH RECURSIVE
-- include: inherited
, listed (own, place, node_key) AS (
    SELECT * FROM (
        SELECT 0, n.depth, n.rowid
        FROM inherited AS i
        CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
            AND n.depth > MAX(i.floor, :place) AND n.depth <= i.ceiling
        WHERE i.session_key = :session_key AND NOT :own AND n.kind = :kind AND n.tombstoned_at_ms IS NULL
        ORDER BY n.depth
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM (
        SELECT 1, n.seq, n.rowid
        FROM lash_nodes AS n INDEXED BY lash_nodes_kind
        WHERE n.session_key = :session_key AND n.kind = :kind AND n.tombstoned_at_ms IS NULL
            AND n.seq > CASE WHEN :own THEN :place ELSE -1 END
        ORDER BY n.seq
        LIMIT :limit
    )
)
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body, n.packed
FROM listed AS l
CROSS JOIN lash_nodes AS n ON n.rowid = l.node_key
ORDER BY l.own, l.place
LIMIT :limit;

-- name: node_list_newest
-- The same in the opposite order, before a place. The inherited path is only read if the own nodes do not fill the page.
WITH RECURSIVE
-- include: inherited
, owned (own, place, node_key) AS MATERIALIZED (
    SELECT 1, n.seq, n.rowid
    FROM lash_nodes AS n INDEXED BY lash_nodes_kind
    WHERE :own AND n.session_key = :session_key AND n.kind = :kind AND n.tombstoned_at_ms IS NULL AND n.seq < :place
    ORDER BY n.seq DESC
    LIMIT :limit
),
listed (own, place, node_key) AS (
    SELECT * FROM owned
    UNION ALL
    SELECT * FROM (
        SELECT 0, n.depth, n.rowid
        FROM inherited AS i
        CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
            AND n.depth > i.floor AND n.depth <= i.ceiling
        WHERE (SELECT COUNT(*) FROM owned) < :limit AND i.session_key = :session_key AND n.kind = :kind
            AND n.tombstoned_at_ms IS NULL AND (:own OR n.depth < :place)
        ORDER BY n.depth DESC
        LIMIT :limit
    )
)
SELECT n.node_id, n.parent_node_id, n.depth, 0, n.body, n.packed
FROM listed AS l
CROSS JOIN lash_nodes AS n ON n.rowid = l.node_key
ORDER BY l.own DESC, l.place DESC
LIMIT :limit;

-- name: node_without_kind
-- Some nodes that were stored before nodes had a kind, after a node.
SELECT session_key, node_id, body, packed
FROM lash_nodes
WHERE kind = '' AND (session_key, node_id) > (:session_key, :node_id)
ORDER BY session_key, node_id
LIMIT :limit;

-- name: node_set_kind
-- Gives a node its kind.
UPDATE lash_nodes SET kind = :kind WHERE session_key = :session_key AND node_id = :node_id;

-- name: node_all
-- Every live node that a session owns, in the order of insertion.
SELECT node_id, parent_node_id, depth, 0, body, packed
FROM lash_nodes
WHERE session_key = :session_key AND tombstoned_at_ms IS NULL
ORDER BY seq;

-- name: node_inherited
-- The path that a session inherits, from the root; empty unless it is a fork.
WITH RECURSIVE
-- include: inherited
SELECT n.node_id, n.parent_node_id, n.depth, n.tombstoned_at_ms IS NOT NULL, n.body, n.packed
FROM inherited AS i
CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
    AND n.depth > i.floor AND n.depth <= i.ceiling
WHERE i.session_key = :session_key
ORDER BY n.depth;

-- name: node_path
-- The nodes from the root to one node, own or inherited, or only the last of them: a climb over segments, a range on
-- each. A climb that reaches segment 0 continues along the inherited runs, as far as nodes are wanted.
WITH RECURSIVE
-- include: inherited
, own_leaf (segment, depth) AS (
    SELECT segment, depth FROM lash_nodes WHERE session_key = :session_key AND node_id = :leaf_node_id
),
leaf (segment, depth) AS (
    SELECT segment, depth FROM own_leaf
    UNION ALL
    SELECT 0, n.depth
    FROM inherited AS i
    CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = :leaf_node_id
    WHERE NOT EXISTS (SELECT 1 FROM own_leaf)
        AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
),
climb (segment, ceiling) AS (
    SELECT segment, depth FROM leaf
    UNION ALL
    SELECT s.parent_segment, s.parent_depth
    FROM climb AS c
    JOIN lash_segments AS s ON s.session_key = :session_key AND s.segment = c.segment
    WHERE s.parent_segment IS NOT NULL AND s.parent_depth > (SELECT depth FROM leaf) - :last
),
wanted (owner_key, segment, floor, ceiling, next_key, top) AS (
    SELECT r.owner_key, r.segment, r.floor, r.ceiling, r.next_key, c.ceiling
    FROM climb AS c
    CROSS JOIN lash_inherited AS i ON i.session_key = :session_key
    CROSS JOIN lash_runs AS r ON r.run_key = i.run_key
    WHERE c.segment = 0
    UNION ALL
    SELECT r.owner_key, r.segment, r.floor, r.ceiling, r.next_key, h.top
    FROM wanted AS h
    CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
    WHERE h.floor > (SELECT depth FROM leaf) - :last
),
run (session_key, segment, floor, ceiling) AS (
    SELECT :session_key, segment, -1, ceiling FROM climb
    UNION ALL
    SELECT owner_key, segment, floor, MIN(ceiling, top) FROM wanted WHERE floor < top
)
SELECT n.node_id, n.parent_node_id, n.depth, n.tombstoned_at_ms IS NOT NULL, n.body, n.packed, n.kind = 'erased'
FROM run AS r
CROSS JOIN lash_nodes AS n ON n.session_key = r.session_key AND n.segment = r.segment
    AND n.depth <= r.ceiling AND n.depth > MAX(r.floor, (SELECT depth FROM leaf) - :last)
ORDER BY n.depth;

-- fragment: tail_columns
-- The kind of a long node is not read: it is behind the body, on its last page, and an erased body is short. The limit
-- is NULL if bodies are sealed, which may make them long.
    n.node_id, n.parent_node_id, n.body, n.packed, n.tombstoned_at_ms IS NULL AND CASE
        WHEN octet_length(n.packed) > 0 OR octet_length(n.body) > :longest_erased THEN 1
        ELSE n.kind <> 'erased'
    END

-- name: node_tail
-- The last nodes of a session's active path, as far as they lie on the segment of the leaf.
SELECT
-- include: tail_columns
FROM lash_sessions AS s
CROSS JOIN lash_nodes AS n ON n.session_key = s.session_key AND n.segment = s.leaf_segment
    AND n.depth > s.leaf_depth - :last AND n.depth <= s.leaf_depth
WHERE s.session_id = :session_id
ORDER BY n.depth;

-- name: node_tail_above
-- The nodes of one segment above one of a session's own nodes: of its own segment, or of the one that this leaves there.
-- They are found by their places, so that a parent id that is damaged does not lead to another path.
SELECT
-- include: tail_columns
FROM lash_sessions AS s
CROSS JOIN lash_nodes AS below ON below.session_key = s.session_key AND below.node_id = :node_id
CROSS JOIN lash_segments AS g ON g.session_key = below.session_key AND g.segment = below.segment
CROSS JOIN lash_nodes AS n ON n.session_key = below.session_key
    AND n.segment = CASE WHEN g.parent_depth = below.depth - 1 THEN g.parent_segment ELSE g.segment END
    AND n.depth >= below.depth - :last AND n.depth < below.depth
WHERE s.session_id = :session_id
ORDER BY n.depth;

-- name: node_held
-- Those of some nodes (a JSON array of ids) that cannot be removed, and why: they lie on the active path of the session
-- (path), it inherits them (source), or a fork inherits them from it (fork).
WITH RECURSIVE
-- include: inherited
, climb (segment, ceiling) AS (
    SELECT leaf_segment, leaf_depth FROM lash_sessions
    WHERE session_key = :session_key AND leaf_segment IS NOT NULL
    UNION ALL
    SELECT s.parent_segment, s.parent_depth
    FROM climb AS c
    JOIN lash_segments AS s ON s.session_key = :session_key AND s.segment = c.segment
    WHERE s.parent_segment IS NOT NULL
),
held (reason, session_key, segment, floor, ceiling) AS (
    SELECT 'path', :session_key, segment, -1, ceiling FROM climb
    UNION ALL
    SELECT 'source', owner_key, segment, floor, ceiling FROM inherited WHERE session_key = :session_key
    UNION ALL
    SELECT 'fork', owner_key, segment, floor, ceiling FROM lash_runs WHERE owner_key = :session_key
)
SELECT n.node_id, MIN(h.reason)
FROM held AS h
CROSS JOIN json_each(:node_ids) AS wanted
CROSS JOIN lash_nodes AS n ON n.session_key = h.session_key AND n.node_id = wanted.value
WHERE n.segment = h.segment AND n.depth > h.floor AND n.depth <= h.ceiling
GROUP BY n.node_id
ORDER BY n.node_id;

-- name: node_tombstone
-- Marks nodes (a JSON array of ids) as removed.
UPDATE lash_nodes
SET tombstoned_at_ms = :now_ms
WHERE session_key = :session_key AND tombstoned_at_ms IS NULL
    AND node_id IN (SELECT value FROM json_each(:node_ids));

-- name: node_recount
-- Counts the live nodes and user messages that a session sees, its own and the inherited ones.
WITH RECURSIVE
-- include: inherited
, seen (user_message) AS (
    SELECT user_message FROM lash_nodes WHERE session_key = :session_key AND tombstoned_at_ms IS NULL
    UNION ALL
    SELECT n.user_message
    FROM inherited AS i
    CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
        AND n.depth > i.floor AND n.depth <= i.ceiling
    WHERE i.session_key = :session_key
)
UPDATE lash_sessions
SET (node_count, user_message_count) = (SELECT COUNT(*), COALESCE(SUM(user_message), 0) FROM seen),
    first_user_message = :first_user_message, changed = 1 + MAX(
        (SELECT COALESCE(MAX(changed), 0) FROM lash_sessions),
        (SELECT COALESCE(MAX(changed), 0) FROM lash_session_ids WHERE changed > 0)
    )
WHERE session_key = :session_key;

-- name: node_first_user
-- The first live user message that a session sees: an inherited one, or else the one inserted first.
WITH RECURSIVE
-- include: inherited
, said (own, place, node_key) AS (
    SELECT * FROM (
        SELECT 1, seq, rowid
        FROM lash_nodes INDEXED BY lash_nodes_kind
        WHERE session_key = :session_key AND kind = 'message' AND tombstoned_at_ms IS NULL AND user_message = 1
        ORDER BY seq
        LIMIT 1
    )
    UNION ALL
    SELECT 0, n.depth, n.rowid
    FROM inherited AS i
    CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
        AND n.depth > i.floor AND n.depth <= i.ceiling
    WHERE i.session_key = :session_key AND n.user_message = 1
)
SELECT node_id, parent_node_id, depth, 0, body, packed
FROM lash_nodes
WHERE rowid = (SELECT node_key FROM said ORDER BY own, place LIMIT 1);

-- name: node_close_segments
-- Closes the segments on which removed nodes lie, so that their positions are not used again.
UPDATE lash_segments
SET closed = 1
WHERE session_key = :session_key
    AND segment IN (SELECT segment FROM lash_nodes WHERE session_key = :session_key AND tombstoned_at_ms IS NOT NULL);

-- name: node_removed_count
-- Counts the removed nodes of one session; no row if the session does not exist.
SELECT (SELECT COUNT(*) FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NOT NULL)
FROM lash_sessions AS s
WHERE s.session_id = :session_id;

-- name: node_vacuum
-- Deletes the removed nodes of one session permanently.
DELETE FROM lash_nodes WHERE session_key = :session_key AND tombstoned_at_ms IS NOT NULL;
