-- name: node_one
-- One live node by its id, own or inherited, or none; no row if the session does not exist. The limit ends the search at
-- the run that has the node.
SELECT
    s.session_key,
    array(
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
        FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.node_id = $2::text AND n.tombstoned_at_ms IS NULL
        UNION ALL
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
        FROM :"schema".lash_runs_of(s.session_key) AS i
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n WHERE n.session_key = i.owner_key AND n.node_id = $2::text OFFSET 0
        ) AS n
        WHERE i.session_key = s.session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
            AND n.tombstoned_at_ms IS NULL
        LIMIT 1
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: node_many
-- The live nodes among some ids, own or inherited; no row if the session does not exist.
SELECT
    s.session_key,
    array(
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
        FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.node_id = ANY ($2::text[]) AND n.tombstoned_at_ms IS NULL
        UNION ALL
        SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
        FROM :"schema".lash_runs_of(s.session_key) AS i
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n
            WHERE n.session_key = i.owner_key AND n.node_id = ANY ($2::text[])
            OFFSET 0
        ) AS n
        WHERE i.session_key = s.session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
            AND n.tombstoned_at_ms IS NULL
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- fragment: node_page
-- The session ($1) and the place of a node ($2, none for the first page) in the order of the whole graph: whether the
-- session owns the node, and its number among the nodes that the session owns, or its depth on the inherited path.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text),
after AS (
    SELECT true AS own, n.seq AS place
    FROM s
    JOIN :"schema".lash_nodes AS n ON n.session_key = s.session_key AND n.node_id = $2::text
    UNION ALL
    SELECT false, n.depth
    FROM s
    JOIN :"schema".lash_runs_of(s.session_key) AS i ON i.session_key = s.session_key
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n WHERE n.session_key = i.owner_key AND n.node_id = $2::text OFFSET 0
    ) AS n
    WHERE n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
),

-- name: node_children
-- The live children of a node ($3), at most $4: the inherited one, the one that follows it on its segment, and the first
-- nodes of segments. Before them the session, and whether the node that they come after exists.
-- include: node_page
parent AS (
    SELECT n.segment, n.depth
    FROM s
    JOIN :"schema".lash_nodes AS n ON n.session_key = s.session_key AND n.node_id = $3::text
    WHERE n.tombstoned_at_ms IS NULL
    UNION ALL
    SELECT 0, n.depth
    FROM s
    JOIN :"schema".lash_runs_of(s.session_key) AS i ON i.session_key = s.session_key
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n WHERE n.session_key = i.owner_key AND n.node_id = $3::text OFFSET 0
    ) AS n
    WHERE n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling AND n.tombstoned_at_ms IS NULL
),
child AS (
    SELECT false AS own, n.depth AS place, n.*
    FROM s
    CROSS JOIN parent AS p
    JOIN :"schema".lash_runs_of(s.session_key) AS i ON i.session_key = s.session_key AND p.segment = 0
        AND p.depth + 1 > i.floor AND p.depth + 1 <= i.ceiling
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = i.owner_key AND n.segment = i.segment AND n.depth = p.depth + 1
        OFFSET 0
    ) AS n
    WHERE n.parent_node_id = $3::text AND $2::text IS NULL
    UNION ALL
    SELECT true, n.seq, n.*
    FROM s
    CROSS JOIN parent AS p
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.segment = p.segment AND n.depth = p.depth + 1
        OFFSET 0
    ) AS n
    WHERE n.parent_node_id = $3::text AND n.tombstoned_at_ms IS NULL
        AND n.seq > coalesce((SELECT place FROM after WHERE own), -1)
    UNION ALL
    SELECT true, n.seq, n.*
    FROM s
    CROSS JOIN parent AS p
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.parent_node_id = $3::text AND n.begins_branch
            AND n.tombstoned_at_ms IS NULL AND n.seq > coalesce((SELECT place FROM after WHERE own), -1)
        ORDER BY n.seq
        LIMIT $4::bigint
    ) AS n
)
SELECT
    s.session_key,
    $2::text IS NULL OR EXISTS (SELECT 1 FROM after),
    array(
        SELECT row(c.node_id, c.parent_node_id, c.depth, false, c.body, c.packed)
        FROM child AS c
        ORDER BY c.own, c.place
        LIMIT $4::bigint
    )
FROM s;

-- name: node_list
-- The live nodes of one kind ($3), at most $4: the inherited ones along their path, then the own ones in the order of
-- insertion. Before them the session, and whether the node that they come after exists.
-- include: node_page
listed AS (
    (
        SELECT false AS own, n.depth AS place, n.*
        FROM s
        JOIN :"schema".lash_runs_of(s.session_key) AS i ON i.session_key = s.session_key
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n
            WHERE n.session_key = i.owner_key AND n.segment = i.segment
                AND n.depth > greatest(i.floor, (SELECT place FROM after WHERE NOT own)) AND n.depth <= i.ceiling
            OFFSET 0
        ) AS n
        WHERE NOT EXISTS (SELECT 1 FROM after WHERE own) AND n.kind = $3::text AND n.tombstoned_at_ms IS NULL
        ORDER BY n.depth
        LIMIT $4::bigint
    )
    UNION ALL
    (
        SELECT true, n.seq, n.*
        FROM s
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n
            WHERE n.session_key = s.session_key AND n.kind = $3::text AND n.tombstoned_at_ms IS NULL
                AND n.seq > coalesce((SELECT place FROM after WHERE own), -1)
            ORDER BY n.seq
            LIMIT $4::bigint
        ) AS n
    )
)
SELECT
    s.session_key,
    $2::text IS NULL OR EXISTS (SELECT 1 FROM after),
    array(
        SELECT row(l.node_id, l.parent_node_id, l.depth, false, l.body, l.packed)
        FROM listed AS l
        ORDER BY l.own, l.place
        LIMIT $4::bigint
    )
FROM s;

-- name: node_list_newest
-- The same in the opposite order. The inherited path is only read if the own nodes do not fill the page.
-- include: node_page
owned AS MATERIALIZED (
    SELECT true AS own, n.seq AS place, n.*
    FROM s
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.kind = $3::text AND n.tombstoned_at_ms IS NULL
            AND n.seq < coalesce((SELECT place FROM after WHERE own), 9223372036854775807)
        ORDER BY n.seq DESC
        LIMIT $4::bigint
    ) AS n
    WHERE NOT EXISTS (SELECT 1 FROM after WHERE NOT own)
),
listed AS (
    SELECT * FROM owned
    UNION ALL
    (
        SELECT false, n.depth, n.*
        FROM s
        JOIN :"schema".lash_runs_of(s.session_key) AS i ON i.session_key = s.session_key
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n
            WHERE n.session_key = i.owner_key AND n.segment = i.segment AND n.depth > i.floor
                AND n.depth <= i.ceiling
                AND n.depth < coalesce((SELECT place FROM after WHERE NOT own), 9223372036854775807)
            OFFSET 0
        ) AS n
        WHERE (SELECT count(*) FROM owned) < $4::bigint AND n.kind = $3::text AND n.tombstoned_at_ms IS NULL
        ORDER BY n.depth DESC
        LIMIT $4::bigint
    )
)
SELECT
    s.session_key,
    $2::text IS NULL OR EXISTS (SELECT 1 FROM after),
    array(
        SELECT row(l.node_id, l.parent_node_id, l.depth, false, l.body, l.packed)
        FROM listed AS l
        ORDER BY l.own DESC, l.place DESC
        LIMIT $4::bigint
    )
FROM s;

-- name: node_without_kind
-- Some nodes ($3) that were stored before nodes had a kind, after a node ($1, $2).
SELECT session_key, node_id, body, packed
FROM :"schema".lash_nodes
WHERE kind = '' AND (session_key, node_id) > ($1::bigint, $2::text)
ORDER BY session_key, node_id
LIMIT $3::bigint;

-- name: node_set_kind
-- Gives nodes their kinds.
UPDATE :"schema".lash_nodes AS n
SET kind = u.kind
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u (session_key, node_id, kind)
WHERE n.session_key = u.session_key AND n.node_id = u.node_id;

-- name: node_tail
-- The last nodes ($2) of a session's active path, as far as they lie on the segment of the leaf.
SELECT
    n.node_id, n.parent_node_id, n.body, n.packed, n.tombstoned_at_ms IS NULL AND n.kind <> 'erased'
FROM :"schema".lash_sessions AS s
CROSS JOIN LATERAL (
    SELECT * FROM :"schema".lash_nodes AS n
    WHERE n.session_key = s.session_key AND n.segment = s.leaf_segment
        AND n.depth > s.leaf_depth - $2::bigint AND n.depth <= s.leaf_depth
    OFFSET 0
) AS n
WHERE s.session_id = $1::text
ORDER BY n.depth;

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
    FROM :"schema".lash_runs_of($1::bigint) WHERE session_key = $1::bigint
    UNION ALL
    SELECT 'fork', owner_key, segment, floor, ceiling
    FROM :"schema".lash_runs WHERE owner_key = $1::bigint
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
    (
        SELECT true AS own, seq AS place, node_id, parent_node_id, depth, body, packed
        FROM :"schema".lash_nodes
        WHERE session_key = $1::bigint AND kind = 'message' AND tombstoned_at_ms IS NULL AND user_message
        ORDER BY seq
        LIMIT 1
    )
    UNION ALL
    SELECT false, n.depth, n.node_id, n.parent_node_id, n.depth, n.body, n.packed
    FROM :"schema".lash_runs_of($1::bigint) AS i
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
            FROM :"schema".lash_runs_of($1::bigint) AS i
            JOIN :"schema".lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
                AND n.depth > i.floor AND n.depth <= i.ceiling
            WHERE i.session_key = $1::bigint
        ) AS seen
    ),
    first_user_message = $2::text, changed_xid = pg_current_xact_id()
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
