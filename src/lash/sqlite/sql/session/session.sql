-- fragment: next_change
-- The number of the next change of any session.
    1 + MAX(
        (SELECT COALESCE(MAX(changed), 0) FROM lash_sessions),
        (SELECT COALESCE(MAX(changed), 0) FROM lash_session_ids WHERE changed > 0)
    )

-- name: session_key
-- The key of a session.
SELECT session_key FROM lash_sessions WHERE session_id = :session_id;

-- name: session_take_id
-- Reserves an id for a new session and returns the numbers it starts from, above those of a deleted one; no row if a
-- session of this id exists.
INSERT INTO lash_session_ids AS i (session_id)
VALUES (:session_id)
ON CONFLICT (session_id) DO UPDATE
SET revision = i.revision + 1, fencing = i.fencing + 1, deleted_at_ms = NULL
WHERE i.deleted_at_ms IS NOT NULL
RETURNING revision, fencing;

-- name: session_insert
-- Creates a session.
INSERT INTO lash_sessions (
    session_id, name, created_at_ms, model, cwd, relation, revision, updated_at_ms, owner, labels, metadata,
    expires_at_ms, keep_checkpoints, changed
)
VALUES (
    :session_id, :name, :now_ms, :model, :cwd, :relation, :revision, :now_ms, :owner, :labels, :metadata,
    :expires_at_ms, :keep,
-- include: next_change
);

-- name: session_insert_lease
-- Gives a new session its lease row.
INSERT INTO lash_session_leases (session_key, fencing)
SELECT session_key, :fencing FROM lash_sessions WHERE session_id = :session_id;

-- name: session_is_deleted
-- Whether a session of this id was deleted.
SELECT EXISTS (SELECT 1 FROM lash_session_ids WHERE session_id = :session_id AND deleted_at_ms IS NOT NULL);

-- name: session_meta
-- The metadata of one session.
SELECT
    session_key, session_id, name, created_at_ms, model, cwd, relation, revision, first_user_message,
    user_message_count, updated_at_ms, owner, labels, metadata, expires_at_ms, agent,
    keep_checkpoints
FROM lash_sessions
WHERE session_id = :session_id;

-- name: session_change_meta
-- Changes the given parts of the metadata of one session.
UPDATE lash_sessions
SET name = COALESCE(:name, name), created_at_ms = COALESCE(:created_at_ms, created_at_ms),
    model = COALESCE(:model, model), relation = COALESCE(:relation, relation), labels = COALESCE(:labels, labels),
    metadata = COALESCE(:metadata, metadata), cwd = CASE WHEN :set_cwd THEN :cwd ELSE cwd END,
    owner = CASE WHEN :set_owner THEN :owner ELSE owner END,
    expires_at_ms = CASE WHEN :set_expiry THEN :expires_at_ms ELSE expires_at_ms END,
    keep_checkpoints = CASE WHEN :set_keep THEN :keep ELSE keep_checkpoints END, changed =
-- include: next_change
WHERE session_key = :session_key;

-- name: session_drop_labels
-- Removes the rows by which lists find a session: that of the owner, those of the labels.
DELETE FROM lash_session_labels
WHERE session_key = :session_key AND ((key = '' AND :set_owner) OR (key <> '' AND :set_labels));

-- name: session_add_labels
-- Adds rows by which lists find a session, a JSON array of pairs of key and value.
INSERT INTO lash_session_labels (session_key, key, value)
SELECT :session_key, t.value ->> 0, t.value ->> 1 FROM json_each(:terms) AS t;

-- name: session_expired
-- Sessions whose expiry has passed and whose lease is not live.
SELECT s.session_id
FROM lash_sessions AS s INDEXED BY lash_sessions_expiry
CROSS JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.expires_at_ms <= :now_ms AND (l.token IS NULL OR l.expires_at_ms <= :now_ms)
ORDER BY s.expires_at_ms
LIMIT :limit;

-- name: session_bury
-- Records the last numbers of a session that is about to be deleted.
UPDATE lash_session_ids
SET revision = s.revision, fencing = l.fencing, deleted_at_ms = :now_ms, changed =
-- include: next_change
FROM lash_sessions AS s
JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = :session_id AND lash_session_ids.session_id = :session_id;

-- name: session_delete
-- Deletes a session and, by cascade, all that it owns but its graph.
DELETE FROM lash_sessions WHERE session_id = :session_id;

-- fragment: head
s.session_key, s.revision, s.config IS NOT NULL, s.leaf_node_id, s.leaf_segment, s.leaf_depth,
s.leaf_segment IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM lash_nodes AS f
    WHERE f.session_key = s.session_key AND f.segment = s.leaf_segment AND f.depth = s.leaf_depth + 1
) AND NOT EXISTS (
    SELECT 1 FROM lash_segments AS g
    WHERE g.session_key = s.session_key AND g.segment = s.leaf_segment AND g.closed
) AND NOT EXISTS (
    SELECT 1 FROM lash_inherited AS i
    JOIN lash_runs AS r ON r.run_key = i.run_key
    WHERE i.session_key = s.session_key AND s.leaf_segment = 0 AND r.ceiling > s.leaf_depth
),
s.segment_count, s.node_seq, s.node_count, s.first_user_message, s.user_message_count, s.keep_checkpoints

-- name: session_head
-- The head of one session, for writers.
SELECT
-- include: head
FROM lash_sessions AS s
WHERE s.session_id = :session_id;

-- name: session_for_commit
-- The head of one session, and which other rows exist that a commit must read or delete: inherited nodes, a commit of
-- the turn, frames, components, checkpoints and components below the retention floor (:floor unless the session has a retention of its
-- own), effects of the scope, the first of its new nodes; then the agent, and the lease. At last a batch that the given
-- claim holds, in a row of its own: whether it is the delivery of a wake, and its source key. Without such a batch
-- there is one row.
SELECT
-- include: head
    ,
    EXISTS (SELECT 1 FROM lash_inherited AS i WHERE i.session_key = s.session_key),
    EXISTS (SELECT 1 FROM lash_turns AS t WHERE t.session_key = s.session_key AND t.turn_id = :turn_id),
    EXISTS (SELECT 1 FROM lash_frames AS f WHERE f.session_key = s.session_key),
    EXISTS (SELECT 1 FROM lash_components AS c WHERE c.session_key = s.session_key),
    (SELECT MIN(p.revision) FROM lash_checkpoints AS p WHERE p.session_key = s.session_key AND p.revision < (
        CASE
            WHEN s.keep_checkpoints IS NULL THEN :floor
            WHEN s.keep_checkpoints = 0 THEN 0
            ELSE :revision - s.keep_checkpoints + 1
        END
    )),
    EXISTS (SELECT 1 FROM lash_components AS c WHERE c.session_key = s.session_key AND c.last_revision < (
        CASE
            WHEN s.keep_checkpoints IS NULL THEN :floor
            WHEN s.keep_checkpoints = 0 THEN 0
            ELSE :revision - s.keep_checkpoints + 1
        END
    )),
    EXISTS (SELECT 1 FROM lash_effects AS e WHERE e.scope_id = :scope_id)
    OR EXISTS (SELECT 1 FROM lash_effect_groups AS e WHERE e.scope_id = :scope_id),
    EXISTS (SELECT 1 FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.node_id = :node_1)
    OR EXISTS (SELECT 1 FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.node_id = :node_2)
    OR EXISTS (SELECT 1 FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.node_id = :node_3)
    OR EXISTS (SELECT 1 FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.node_id = :node_4),
    s.agent, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms,
    b.batch_id,
    b.batch_id IS NOT NULL
    AND EXISTS (SELECT 1 FROM lash_wakes AS w WHERE w.batch_id = b.batch_id AND w.state = 'queued'),
    b.source_key
FROM lash_sessions AS s
LEFT JOIN lash_session_leases AS l ON l.session_key = s.session_key
LEFT JOIN lash_batches AS b INDEXED BY lash_batches_claim ON b.session_key = s.session_key
    AND b.claim_token = :claim_token AND b.claim_id = :claim_id AND b.claim_token IS NOT NULL
WHERE s.session_id = :session_id;

-- name: session_for_append
-- The head of one session, and which other rows exist that an append must read: inherited nodes, a commit of the turn.
SELECT
-- include: head
    ,
    EXISTS (SELECT 1 FROM lash_inherited AS i WHERE i.session_key = s.session_key),
    EXISTS (SELECT 1 FROM lash_turns AS t WHERE t.session_key = s.session_key AND t.turn_id = :turn_id)
FROM lash_sessions AS s
WHERE s.session_id = :session_id;

-- name: session_read
-- The head of one session, for readers.
SELECT
    session_key, session_id, revision, config, current_frame_id, leaf_node_id, checkpoint_ref, node_count,
    updated_at_ms
FROM lash_sessions
WHERE session_id = :session_id;
