-- name: fork_lock_source
-- Locks the head of a session while it is forked, so that it is neither committed to, pruned nor deleted.
SELECT session_key, config IS NOT NULL, leaf_node_id
FROM :"schema".lash_sessions
WHERE session_id = $1::text
FOR SHARE;

-- name: fork_path
-- The path to a live node, own or inherited, as the runs that a fork at this node inherits. It starts after the last
-- ancestor that is missing or removed; no row if the node is unknown.
WITH RECURSIVE leaf AS (
    SELECT n.segment, n.depth
    FROM :"schema".lash_nodes AS n
    WHERE n.session_key = $1::bigint AND n.node_id = $2::text
    UNION ALL
    SELECT 0, n.depth
    FROM :"schema".lash_runs_of($1::bigint) AS i
    JOIN :"schema".lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = $2::text
    WHERE i.session_key = $1::bigint AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
),
climb AS (
    SELECT segment, depth AS ceiling FROM leaf
    UNION ALL
    SELECT g.parent_segment, g.parent_depth
    FROM climb AS c
    JOIN :"schema".lash_segments AS g ON g.session_key = $1::bigint AND g.segment = c.segment
    WHERE g.parent_segment IS NOT NULL
),
run AS (
    SELECT $1::bigint AS session_key, segment, -1 AS floor, ceiling FROM climb
    UNION ALL
    SELECT i.owner_key, i.segment, i.floor, least(i.ceiling, c.ceiling)
    FROM climb AS c
    JOIN :"schema".lash_runs_of($1::bigint) AS i ON i.session_key = $1::bigint
    WHERE c.segment = 0
),
path AS (
    SELECT
        n.session_key, n.segment, n.depth, n.tombstoned_at_ms IS NOT NULL AS tombstoned,
        lag(n.depth, 1, -1::bigint) OVER (ORDER BY n.depth) AS before
    FROM run AS r
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = r.session_key AND n.segment = r.segment AND n.depth > r.floor AND n.depth <= r.ceiling
        OFFSET 0
    ) AS n
)
SELECT p.session_key, p.segment, min(p.depth) - 1, max(p.depth)
FROM path AS p
WHERE p.depth > coalesce(
        (
            SELECT max(CASE WHEN cut.tombstoned THEN cut.depth ELSE cut.depth - 1 END)
            FROM path AS cut
            WHERE cut.tombstoned OR cut.before <> cut.depth - 1
        ),
        -1
    )
GROUP BY p.session_key, p.segment
ORDER BY 4;

-- name: fork_fill
-- Gives the fork $1 the head of its source $2 with the leaf $3, $4, $5, the last run that it inherits ($6), copies of the
-- frames and of the checkpoint with its bytes, and the attachments that the source has committed, which inherited
-- messages may name; their bytes are shared.
WITH source AS (SELECT * FROM :"schema".lash_sessions WHERE session_key = $2::bigint),
head AS (
    UPDATE :"schema".lash_sessions AS f
    SET revision = f.revision + 1, config = source.config, current_frame_id = source.current_frame_id,
        checkpoint_ref = source.checkpoint_ref, leaf_node_id = $3::text, leaf_segment = $4::bigint,
        leaf_depth = $5::bigint, agent = source.agent
    FROM source
    WHERE f.session_key = $1::bigint
    RETURNING f.session_key, f.revision
),
segments AS (
    INSERT INTO :"schema".lash_segments (session_key, segment)
    SELECT session_key, 0 FROM head WHERE $3::text IS NOT NULL
),
heir AS (
    INSERT INTO :"schema".lash_inherited (session_key, run_key)
    SELECT session_key, $6::bigint FROM head WHERE $6::bigint IS NOT NULL
),
frames AS (
    INSERT INTO :"schema".lash_frames (session_key, frame_id, position, body)
    SELECT head.session_key, f.frame_id, f.position, f.body
    FROM head, :"schema".lash_frames AS f
    WHERE f.session_key = $2::bigint
),
current AS (
    SELECT c.key, c.hash FROM :"schema".lash_components AS c
    WHERE c.session_key = $2::bigint AND c.last_revision IS NULL
),
blobs AS (
    INSERT INTO :"schema".lash_blobs (session_key, hash, codec, size, content)
    SELECT head.session_key, b.hash, b.codec, b.size, b.content
    FROM head, :"schema".lash_blobs AS b
    WHERE b.session_key = $2::bigint AND b.hash IN (SELECT hash FROM current)
),
components AS (
    INSERT INTO :"schema".lash_components (session_key, key, first_revision, hash)
    SELECT head.session_key, current.key, head.revision, current.hash
    FROM head, current
),
checkpoint AS (
    INSERT INTO :"schema".lash_checkpoints (
        session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision
    )
    SELECT head.session_key, head.revision, p.checkpoint_ref, p.turn_state, p.plugin_snapshot_revision
    FROM head, source, :"schema".lash_checkpoints AS p
    WHERE p.session_key = source.session_key AND p.revision = source.revision
),
-- Locked, so that at every moment the source or the fork names the bytes and no sweep can delete them.
attached AS (
    SELECT * FROM :"schema".lash_attachments
    WHERE session_key = $2::bigint AND committed_at_ms IS NOT NULL
    FOR SHARE
),
attachments AS (
    INSERT INTO :"schema".lash_attachments (
        session_key, attachment_id, media_type, byte_len, width, height, label, intent_at_ms, committed_at_ms
    )
    SELECT
        head.session_key, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.intent_at_ms,
        a.committed_at_ms
    FROM head, attached AS a
)
SELECT revision FROM head;

-- name: fork_runs
-- The runs that a session inherits, from the root.
SELECT run_key, owner_key, segment, floor, ceiling FROM :"schema".lash_runs_of($1::bigint) ORDER BY ceiling;

-- name: fork_run
-- Adds a run to the end of a list, and returns its key.
INSERT INTO :"schema".lash_runs (next_key, owner_key, segment, floor, ceiling)
VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bigint)
RETURNING run_key;

-- name: fork_disinherit
-- Deletes what a fork inherits, before its graph is replaced, and returns the last run.
DELETE FROM :"schema".lash_inherited WHERE session_key = $1::bigint RETURNING run_key;

-- name: fork_runs_gate
-- Serialises the search for runs that no fork names any more. Two transactions that delete the last two forks would each
-- still see the other's and leave runs behind.
SELECT pg_advisory_xact_lock(hashtextextended('lash runs ' || $1::text, 0));

-- name: fork_drop_runs
-- Deletes a run and those before it in its list, up to one that another fork or run names. Returns the sessions that own
-- their nodes, the youngest first: one that still exists may be deleted at this moment, by a transaction that sees the
-- runs. The search behind the gate decides.
WITH RECURSIVE dead AS (
    SELECT r.run_key, r.next_key, r.owner_key
    FROM :"schema".lash_runs AS r
    WHERE r.run_key = $1::bigint
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_inherited AS i WHERE i.run_key = r.run_key)
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_runs AS o WHERE o.next_key = r.run_key)
    UNION ALL
    SELECT r.run_key, r.next_key, r.owner_key
    FROM dead AS d
    CROSS JOIN LATERAL (SELECT * FROM :"schema".lash_runs AS k WHERE k.run_key = d.next_key OFFSET 0) AS r
    WHERE NOT EXISTS (SELECT 1 FROM :"schema".lash_inherited AS i WHERE i.run_key = r.run_key)
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_runs AS o WHERE o.next_key = r.run_key AND o.run_key <> d.run_key
        )
),
gone AS (
    DELETE FROM :"schema".lash_runs AS r USING dead WHERE r.run_key = dead.run_key RETURNING r.owner_key
)
SELECT DISTINCT g.owner_key FROM gone AS g ORDER BY g.owner_key DESC;

-- name: fork_gate
-- Serialises the search for nodes of one session that no fork inherits any more. Two transactions that delete its last
-- two forks would each still see the other's and leave nodes behind.
SELECT pg_advisory_xact_lock(hashtextextended('lash graph ' || $1::text || ' ' || $2::bigint, 0));

-- name: fork_reclaim_nodes
-- Deletes the nodes of a session that no fork inherits, if the session itself is deleted.
DELETE FROM :"schema".lash_nodes AS n
WHERE n.session_key = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_sessions AS s WHERE s.session_key = $1::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_runs AS i
        WHERE i.owner_key = n.session_key AND i.segment = n.segment AND i.floor < n.depth AND i.ceiling >= n.depth
    );

-- name: fork_reclaim_segments
-- Deletes the segments of a session of which no fork inherits a node, if the session itself is deleted.
DELETE FROM :"schema".lash_segments AS g
WHERE g.session_key = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_sessions AS s WHERE s.session_key = $1::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = g.session_key AND i.segment = g.segment
    );
