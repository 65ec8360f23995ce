-- name: append_apply
-- Writes appends to one or several sessions, in their order; those to one session follow each other. Writes each whole,
-- or not at all if the turn has its commit or a node id is taken, own or inherited. The positions come from the locked
-- row, so that no plan can be outdated. A session that changed between the snapshot of this statement and the lock is
-- left alone, because the other tables are read from the snapshot: its appends are returned as stale.
--
-- Returns a row for each append that was written or is stale: its place, whether it was written, its revision, the leaf
-- before it, and the head after the last one of its session.
--
-- Columns of the appends. The nodes of the append at a place end at that place of node_ends; user_texts has the first
-- message of a user among them:
-- arguments: session_ids, turn_ids, hashes, node_ends, user_counts, user_texts, max_together
-- Columns of all nodes:
-- arguments: node_ids, user_messages, bodies, packed_bodies, kinds
-- The head of a session that has no commit, and how many checkpoints are kept (NULL: all) if the session does not say so:
-- arguments: config, checkpoint_ref, turn_state, keep
WITH asked AS MATERIALIZED (
    SELECT
        a.*, coalesce((:node_ends::integer[])[a.place - 1], 0) + 1 AS first_node,
        (:node_ends::integer[])[a.place] AS last_node
    FROM unnest(
        :session_ids::text[], :turn_ids::text[], :hashes::text[], :user_counts::bigint[], :user_texts::text[]
    ) WITH ORDINALITY AS a (session_id, turn_id, commit_hash, user_count, user_text, place)
    LIMIT :max_together::bigint
),
seen AS MATERIALIZED (
    SELECT s.session_id, s.session_key, s.revision, s.node_count, s.leaf_node_id
    FROM (SELECT DISTINCT session_id FROM asked) AS a
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_sessions AS s WHERE s.session_id = a.session_id OFFSET 0
    ) AS s
),
-- In the order of their keys, as commits lock them. A row that another transaction changed meanwhile is not held.
held AS MATERIALIZED (
    SELECT s.*
    FROM seen
    JOIN :"schema".lash_sessions AS s ON s.session_key = seen.session_key
    WHERE s.revision = seen.revision AND s.node_count = seen.node_count
        AND s.leaf_node_id IS NOT DISTINCT FROM seen.leaf_node_id
    ORDER BY s.session_key
    FOR NO KEY UPDATE OF s
),
-- The leaf is a tip if nothing follows it on its segment, nor ever did: the next node stays on the segment.
placed AS MATERIALIZED (
    SELECT
        h.session_key, h.revision, h.leaf_node_id, h.leaf_segment, h.leaf_depth, h.node_seq,
        h.leaf_segment IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS f
            WHERE f.session_key = h.session_key AND f.segment = h.leaf_segment AND f.depth = h.leaf_depth + 1
            OFFSET 0
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_segments AS g
            WHERE g.session_key = h.session_key AND g.segment = h.leaf_segment AND g.closed
            OFFSET 0
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_inherited AS i
            JOIN :"schema".lash_runs AS r ON r.run_key = i.run_key
            WHERE i.session_key = h.session_key AND h.leaf_segment = 0 AND r.ceiling > h.leaf_depth
            OFFSET 0
        ) AS is_tip,
        h.config IS NULL AS is_first
    FROM held AS h
),
-- The appends that are written, numbered within their session, each with the number of nodes before its own.
fits AS MATERIALIZED (
    SELECT
        a.*, h.session_key, row_number() OVER in_session AS number,
        coalesce(sum(a.last_node - a.first_node + 1) OVER earlier, 0)::bigint AS nodes_before,
        coalesce(lag((:node_ids::text[])[a.last_node]) OVER in_session, h.leaf_node_id) AS parent_node_id
    FROM asked AS a
    JOIN held AS h ON h.session_id = a.session_id
    WHERE NOT EXISTS (
            SELECT 1 FROM :"schema".lash_turns AS t
            WHERE t.session_key = h.session_key AND t.turn_id = a.turn_id
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS n
            WHERE n.session_key = h.session_key AND n.node_id = ANY ((:node_ids::text[])[a.first_node:a.last_node])
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT 1
            FROM :"schema".lash_runs_of(h.session_key) AS i
            CROSS JOIN LATERAL (
                SELECT n.segment, n.depth FROM :"schema".lash_nodes AS n
                WHERE n.session_key = i.owner_key AND n.node_id = ANY ((:node_ids::text[])[a.first_node:a.last_node])
                OFFSET 0
            ) AS n
            WHERE i.session_key = h.session_key AND n.segment = i.segment AND n.depth > i.floor
                AND n.depth <= i.ceiling
            OFFSET 0
        )
    WINDOW in_session AS (PARTITION BY h.session_key ORDER BY a.place),
        earlier AS (in_session ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
total AS (
    SELECT
        session_key, count(*) AS appends, sum(last_node - first_node + 1)::bigint AS nodes,
        sum(user_count)::bigint AS user_count, max(last_node) AS last_node,
        (array_agg(user_text ORDER BY place) FILTER (WHERE user_text IS NOT NULL))[1] AS user_text
    FROM fits
    GROUP BY session_key
),
new AS (
    UPDATE :"schema".lash_sessions AS s
    SET revision = p.revision + t.appends, config = coalesce(s.config, :config::text),
        checkpoint_ref = coalesce(s.checkpoint_ref, :checkpoint_ref::text),
        leaf_node_id = (:node_ids::text[])[t.last_node],
        leaf_segment = CASE WHEN p.is_tip THEN p.leaf_segment ELSE s.segment_count + 1 END,
        leaf_depth = coalesce(p.leaf_depth, -1) + t.nodes,
        segment_count = s.segment_count + CASE WHEN p.is_tip THEN 0 ELSE 1 END, node_seq = s.node_seq + t.nodes,
        node_count = s.node_count + t.nodes,
        first_user_message = CASE
            WHEN s.user_message_count > 0 THEN s.first_user_message ELSE coalesce(t.user_text, '')
        END,
        user_message_count = s.user_message_count + t.user_count, updated_at_ms = :"schema".lash_now_ms(),
        changed_xid = pg_current_xact_id()
    FROM placed AS p
    JOIN total AS t ON t.session_key = p.session_key
    WHERE s.session_key = p.session_key
    RETURNING
        s.session_key, s.revision, s.leaf_node_id, s.leaf_segment, s.leaf_depth, s.segment_count, s.node_seq,
        s.node_count, s.first_user_message, s.user_message_count, s.updated_at_ms, p.is_tip, p.is_first,
        p.revision AS old_revision, p.leaf_segment AS old_segment, coalesce(p.leaf_depth, -1) AS old_depth,
        p.leaf_depth AS parent_depth, p.node_seq AS old_seq, s.keep_checkpoints,
        CASE WHEN s.keep_checkpoints IS NULL THEN :keep::bigint ELSE nullif(s.keep_checkpoints, 0) END AS keep
),
segments AS (
    INSERT INTO :"schema".lash_segments (session_key, segment, parent_segment, parent_depth)
    SELECT session_key, leaf_segment, old_segment, parent_depth FROM new WHERE NOT is_tip
),
-- Each node but the first of an append follows the one before it.
nodes AS (
    INSERT INTO :"schema".lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed, kind, begins_branch
    )
    SELECT
        new.session_key, new.leaf_segment, new.old_depth + f.nodes_before + n.place,
        new.old_seq + f.nodes_before + n.place, n.node_id,
        CASE WHEN n.place = 1 THEN f.parent_node_id ELSE (:node_ids::text[])[f.first_node + n.place - 2] END,
        n.user_message, n.body, n.packed, n.kind,
        NOT new.is_tip AND new.old_segment IS NOT NULL AND f.nodes_before + n.place = 1
    FROM new
    JOIN fits AS f ON f.session_key = new.session_key
    CROSS JOIN LATERAL unnest(
        (:node_ids::text[])[f.first_node:f.last_node], (:user_messages::boolean[])[f.first_node:f.last_node],
        (:bodies::text[])[f.first_node:f.last_node], (:packed_bodies::bytea[])[f.first_node:f.last_node],
        (:kinds::text[])[f.first_node:f.last_node]
    ) WITH ORDINALITY AS n (node_id, user_message, body, packed, kind, place)
),
-- The text that SQLite stores, whose encoder writes no spaces.
stamped AS (
    INSERT INTO :"schema".lash_turns (session_key, turn_id, commit_hash, result, committed_at_ms)
    SELECT
        new.session_key, f.turn_id, f.commit_hash,
        format(
            '{"revision":%s,"parent_node_id":%s}', new.old_revision + f.number,
            coalesce(to_json(f.parent_node_id)::text, 'null')
        ),
        new.updated_at_ms
    FROM new
    JOIN fits AS f ON f.session_key = new.session_key
    WHERE f.turn_id IS NOT NULL
),
moved_checkpoint AS (
    UPDATE :"schema".lash_checkpoints AS p
    SET revision = new.revision
    FROM new
    WHERE new.keep = 1 AND p.session_key = new.session_key AND p.revision = new.old_revision
        AND NOT new.is_first
),
-- One checkpoint for each new revision that is kept.
copied_checkpoints AS (
    INSERT INTO :"schema".lash_checkpoints (
        session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision
    )
    SELECT new.session_key, kept.revision, p.checkpoint_ref, p.turn_state, p.plugin_snapshot_revision
    FROM new
    CROSS JOIN LATERAL (
        SELECT c.checkpoint_ref, c.turn_state, c.plugin_snapshot_revision
        FROM :"schema".lash_checkpoints AS c
        WHERE c.session_key = new.session_key AND c.revision = new.old_revision AND NOT new.is_first
            AND new.keep IS DISTINCT FROM 1
        UNION ALL
        SELECT :checkpoint_ref::text, :turn_state::text, NULL::bigint WHERE new.is_first
    ) AS p
    CROSS JOIN LATERAL generate_series(
        greatest(new.old_revision + 1, new.revision - new.keep + 1), new.revision
    ) AS kept (revision)
),
dropped_checkpoints AS (
    DELETE FROM :"schema".lash_checkpoints AS p
    USING new
    WHERE new.keep > 1 AND p.session_key = new.session_key AND p.revision < new.revision - new.keep + 1
)
SELECT
    f.place, true, new.old_revision + f.number, f.parent_node_id,
    row(
        new.session_key, new.revision, true, new.leaf_node_id, new.leaf_segment, new.leaf_depth, true,
        new.segment_count, new.node_seq, new.node_count, new.first_user_message, new.user_message_count,
        new.keep_checkpoints
    )
FROM new
JOIN fits AS f ON f.session_key = new.session_key
UNION ALL
SELECT a.place, false, 0, NULL, NULL
FROM asked AS a
JOIN seen ON seen.session_id = a.session_id
WHERE NOT EXISTS (SELECT 1 FROM held AS h WHERE h.session_key = seen.session_key)
ORDER BY 1;

-- name: append_lock
-- Locks the rows of some sessions in the order of their keys, so that the next statement sees their last state.
SELECT s.session_key
FROM :"schema".lash_sessions AS s
WHERE s.session_id = ANY ($1::text[])
ORDER BY s.session_key
FOR NO KEY UPDATE;
