-- fragment: inherited
-- The runs that a session inherits, from the last to the first.
inherited (session_key, run_key, owner_key, segment, floor, ceiling, next_key) AS (
    SELECT i.session_key, r.run_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
    FROM lash_inherited AS i
    CROSS JOIN lash_runs AS r ON r.run_key = i.run_key
    WHERE i.session_key = :session_key
    UNION ALL
    SELECT h.session_key, r.run_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
    FROM inherited AS h
    CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
)

-- name: fork_path
-- The path to a live node, own or inherited, as the runs that a fork at this node inherits. It starts after the last
-- ancestor that is missing or removed; no row if the node is unknown.
WITH RECURSIVE
-- include: inherited
, leaf (segment, depth) AS (
    SELECT segment, depth FROM lash_nodes WHERE session_key = :session_key AND node_id = :node_id
    UNION ALL
    SELECT 0, n.depth
    FROM inherited AS i
    CROSS JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.node_id = :node_id
    WHERE i.session_key = :session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
),
climb (segment, ceiling) AS (
    SELECT segment, depth FROM leaf
    UNION ALL
    SELECT s.parent_segment, s.parent_depth
    FROM climb AS c
    JOIN lash_segments AS s ON s.session_key = :session_key AND s.segment = c.segment
    WHERE s.parent_segment IS NOT NULL
),
run (session_key, segment, floor, ceiling) AS (
    SELECT :session_key, segment, -1, ceiling FROM climb
    UNION ALL
    SELECT i.owner_key, i.segment, i.floor, MIN(i.ceiling, c.ceiling)
    FROM climb AS c
    CROSS JOIN inherited AS i ON i.session_key = :session_key
    WHERE c.segment = 0
),
path (session_key, segment, depth, tombstoned, before) AS (
    SELECT
        n.session_key, n.segment, n.depth, n.tombstoned_at_ms IS NOT NULL,
        LAG(n.depth, 1, -1) OVER (ORDER BY n.depth)
    FROM run AS r
    CROSS JOIN lash_nodes AS n ON n.session_key = r.session_key AND n.segment = r.segment
        AND n.depth > r.floor AND n.depth <= r.ceiling
)
SELECT p.session_key, p.segment, MIN(p.depth) - 1, MAX(p.depth)
FROM path AS p
WHERE p.depth > COALESCE(
        (
            SELECT MAX(CASE WHEN cut.tombstoned THEN cut.depth ELSE cut.depth - 1 END)
            FROM path AS cut
            WHERE cut.tombstoned OR cut.before <> cut.depth - 1
        ),
        -1
    )
GROUP BY p.session_key, p.segment
ORDER BY 4;

-- name: fork_segment
-- Opens the segment on which a fork continues the path that it inherits.
INSERT INTO lash_segments (session_key, segment) VALUES (:session_key, 0);

-- name: fork_runs
-- The runs that a session inherits, from the root.
WITH RECURSIVE
-- include: inherited
SELECT run_key, owner_key, segment, floor, ceiling FROM inherited ORDER BY ceiling;

-- name: fork_run
-- Adds a run to the end of a list, and returns its key.
INSERT INTO lash_runs (next_key, owner_key, segment, floor, ceiling)
VALUES (:next_key, :owner_key, :segment, :floor, :ceiling)
RETURNING run_key;

-- name: fork_inherit
-- Records the last run of the list that a fork inherits.
INSERT INTO lash_inherited (session_key, run_key) VALUES (:session_key, :run_key);

-- name: fork_head
-- Gives a fork the head of its source, with its own leaf.
UPDATE lash_sessions
SET revision = lash_sessions.revision + 1, config = s.config, current_frame_id = s.current_frame_id,
    checkpoint_ref = s.checkpoint_ref, leaf_node_id = :leaf_node_id, leaf_segment = :leaf_segment,
    leaf_depth = :leaf_depth, agent = s.agent
FROM lash_sessions AS s
WHERE lash_sessions.session_key = :session_key AND s.session_key = :source_key;

-- name: fork_frames
-- Copies the frames of a source to its fork.
INSERT INTO lash_frames (session_key, frame_id, position, body)
SELECT :session_key, frame_id, position, body FROM lash_frames WHERE session_key = :source_key;

-- name: fork_blobs
-- Copies the bytes that the head of a source uses to its fork.
INSERT INTO lash_blobs (session_key, hash, codec, size, content)
SELECT :session_key, hash, codec, size, content
FROM lash_blobs
WHERE session_key = :source_key
    AND hash IN (
        SELECT hash FROM lash_components INDEXED BY lash_components_last
        WHERE session_key = :source_key AND last_revision IS NULL
    );

-- name: fork_components
-- Copies the components that the head of a source uses to the head of its fork.
INSERT INTO lash_components (session_key, key, first_revision, hash)
SELECT f.session_key, c.key, f.revision, c.hash
FROM lash_sessions AS f
CROSS JOIN lash_components AS c INDEXED BY lash_components_last ON c.session_key = :source_key
    AND c.last_revision IS NULL
WHERE f.session_key = :session_key;

-- name: fork_checkpoint
-- Copies a source's checkpoint, without its components, to the head of its fork.
INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision)
SELECT f.session_key, f.revision, p.checkpoint_ref, p.turn_state, p.plugin_snapshot_revision
FROM lash_sessions AS f
JOIN lash_sessions AS s ON s.session_key = :source_key
JOIN lash_checkpoints AS p ON p.session_key = s.session_key AND p.revision = s.revision
WHERE f.session_key = :session_key;

-- name: fork_attachments
-- Gives a fork the committed attachments of its source, which inherited messages may name; their bytes are shared.
INSERT INTO lash_attachments (
    session_key, attachment_id, media_type, byte_len, width, height, label, intent_at_ms, committed_at_ms
)
SELECT :session_key, attachment_id, media_type, byte_len, width, height, label, intent_at_ms, committed_at_ms
FROM lash_attachments
WHERE session_key = :source_key AND committed_at_ms IS NOT NULL;

-- name: fork_exists
-- Whether a fork inherits from this session.
SELECT EXISTS (SELECT 1 FROM lash_runs WHERE owner_key = :session_key);

-- name: fork_last_run
-- The last run that a session inherits.
SELECT run_key FROM lash_inherited WHERE session_key = :session_key;

-- name: fork_disinherit
-- Deletes what a fork inherits, before its graph is replaced, and returns the last run.
DELETE FROM lash_inherited WHERE session_key = :session_key RETURNING run_key;

-- name: fork_drop_runs
-- Deletes a run and those before it in its list, up to one that another fork or run names. Returns the sessions that own
-- their nodes.
WITH RECURSIVE dead (run_key, next_key) AS (
    SELECT r.run_key, r.next_key
    FROM lash_runs AS r
    WHERE r.run_key = :run_key
        AND NOT EXISTS (SELECT 1 FROM lash_inherited AS i WHERE i.run_key = r.run_key)
        AND NOT EXISTS (SELECT 1 FROM lash_runs AS o WHERE o.next_key = r.run_key)
    UNION ALL
    SELECT r.run_key, r.next_key
    FROM dead AS d
    CROSS JOIN lash_runs AS r ON r.run_key = d.next_key
    WHERE NOT EXISTS (SELECT 1 FROM lash_inherited AS i WHERE i.run_key = r.run_key)
        AND NOT EXISTS (SELECT 1 FROM lash_runs AS o WHERE o.next_key = r.run_key AND o.run_key <> d.run_key)
)
DELETE FROM lash_runs WHERE run_key IN (SELECT run_key FROM dead) RETURNING owner_key;

-- name: fork_reclaim_nodes
-- Deletes the nodes of a session that no fork inherits, if the session itself is deleted.
DELETE FROM lash_nodes
WHERE session_key = :session_key
    AND NOT EXISTS (SELECT 1 FROM lash_sessions AS s WHERE s.session_key = :session_key)
    AND NOT EXISTS (
        SELECT 1 FROM lash_runs AS i
        WHERE i.owner_key = lash_nodes.session_key AND i.segment = lash_nodes.segment
            AND i.floor < lash_nodes.depth AND i.ceiling >= lash_nodes.depth
    );

-- name: fork_reclaim_segments
-- Deletes the segments of a session of which no fork inherits a node, if the session itself is deleted.
DELETE FROM lash_segments
WHERE session_key = :session_key
    AND NOT EXISTS (SELECT 1 FROM lash_sessions AS s WHERE s.session_key = :session_key)
    AND NOT EXISTS (
        SELECT 1 FROM lash_runs AS i
        WHERE i.owner_key = lash_segments.session_key AND i.segment = lash_segments.segment
    );
