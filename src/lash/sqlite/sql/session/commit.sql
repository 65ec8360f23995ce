-- name: commit_turn
-- The commit that a turn already has.
SELECT commit_hash, result FROM lash_turns WHERE session_key = :session_key AND turn_id = :turn_id;

-- name: commit_known_refs
-- The refs (of a JSON array) whose bytes the session holds.
SELECT hash FROM lash_blobs
WHERE session_key = :session_key AND hash IN (SELECT value FROM json_each(:refs));

-- name: commit_known_attachments
-- The attachments (of a JSON array of ids) that the session has.
SELECT attachment_id FROM lash_attachments
WHERE session_key = :session_key AND attachment_id IN (SELECT value FROM json_each(:attachment_ids));

-- name: commit_held
-- The batches that some claims hold (a JSON array of token and claim id), each with whether it is the delivery of a wake,
-- and its source key.
SELECT
    b.claim_token, b.batch_id,
    EXISTS (SELECT 1 FROM lash_wakes AS w WHERE w.batch_id = b.batch_id AND w.state = 'queued'),
    b.source_key
FROM json_each(:claims) AS claim
CROSS JOIN lash_batches AS b ON b.session_key = :session_key
    AND b.claim_token = claim.value ->> 0 AND b.claim_id = claim.value ->> 1
WHERE b.claim_token IS NOT NULL;

-- name: commit_consume_key
-- Marks the source key of one batch as consumed. A trigger then removes the batch, unless it delivers a wake.
UPDATE lash_source_keys
SET state = 'consumed', settled_at_ms = :now_ms
WHERE session_key = :session_key AND source_key = :source_key AND batch_id = :batch_id;

-- name: commit_consume_keys
-- Marks the source keys of the batches of some claims (a JSON array of tokens) as consumed. A trigger then removes these
-- batches, except deliveries of wakes.
UPDATE lash_source_keys
SET state = 'consumed', settled_at_ms = :now_ms
WHERE session_key = :session_key AND (source_key, batch_id) IN (
    SELECT b.source_key, b.batch_id FROM lash_batches AS b INDEXED BY lash_batches_claim
    WHERE b.session_key = :session_key AND b.claim_token IN (SELECT value FROM json_each(:tokens))
        AND b.claim_token IS NOT NULL
);

-- name: commit_acknowledge_wakes
-- Acknowledges the wakes in the batches of some claims (a JSON array of tokens).
UPDATE lash_wakes
SET state = 'acknowledged'
WHERE state = 'queued' AND batch_id IN (
    SELECT b.batch_id FROM lash_batches AS b INDEXED BY lash_batches_claim
    WHERE b.session_key = :session_key AND b.claim_token IN (SELECT value FROM json_each(:tokens))
        AND b.claim_token IS NOT NULL
);

-- name: commit_consume
-- Removes the batches of some claims (a JSON array of tokens).
DELETE FROM lash_batches
WHERE session_key = :session_key AND claim_token IN (SELECT value FROM json_each(:tokens))
    AND claim_token IS NOT NULL;

-- name: commit_usage_totals
-- The totals so far of the pairs of source and model (a JSON array of arrays) that a commit adds to.
SELECT
    t.source, t.model, t.input_tokens, t.output_tokens, t.cached_input_tokens, t.reasoning_tokens
FROM json_each(:pairs) AS pair
CROSS JOIN lash_usage_totals AS t ON t.session_key = :session_key
    AND t.source = pair.value ->> 0 AND t.model = pair.value ->> 1;

-- name: commit_head
-- Publishes the new head.
UPDATE lash_sessions
SET revision = :revision, config = :config, current_frame_id = :current_frame_id, checkpoint_ref = :checkpoint_ref,
    leaf_node_id = :leaf_node_id, leaf_segment = :leaf_segment, leaf_depth = :leaf_depth,
    segment_count = :segment_count, node_seq = :node_seq, node_count = :node_count,
    first_user_message = :first_user_message, user_message_count = :user_message_count, updated_at_ms = :now_ms,
    changed = 1 + MAX(
        (SELECT COALESCE(MAX(changed), 0) FROM lash_sessions),
        (SELECT COALESCE(MAX(changed), 0) FROM lash_session_ids WHERE changed > 0)
    )
WHERE session_key = :session_key AND revision = :revision - 1;

-- name: commit_agent
-- Sets the agent of a session. SQLite writes an index again whenever a statement sets one of its columns, even to the
-- same value.
UPDATE lash_sessions SET agent = :agent WHERE session_key = :session_key;

-- name: commit_clear_graph
-- Deletes the whole graph of a session before it is replaced; its nodes go by cascade.
DELETE FROM lash_segments WHERE session_key = :session_key;

-- name: commit_segment
-- Opens a segment.
INSERT INTO lash_segments (session_key, segment, parent_segment, parent_depth)
VALUES (:session_key, :segment, :parent_segment, :parent_depth);

-- name: commit_node
-- Adds a node.
INSERT INTO lash_nodes (
    session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed, kind, begins_branch
)
VALUES (
    :session_key, :segment, :depth, :seq, :node_id, :parent_node_id, :user_message, :body, :packed, :kind,
    :begins_branch
);

-- name: commit_blob
-- Stores bytes, unless the session has them.
INSERT INTO lash_blobs (session_key, hash, codec, size, content)
VALUES (:session_key, :hash, :codec, :size, :content)
ON CONFLICT (session_key, hash) DO NOTHING;

-- name: commit_checkpoint
-- Stores the new checkpoint, without its components.
INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision)
VALUES (:session_key, :revision, :checkpoint_ref, :turn_state, :plugin_snapshot_revision);

-- name: commit_replace_checkpoint
-- Stores the new checkpoint in the place of the one before, if that is the only one.
UPDATE lash_checkpoints
SET revision = :revision, checkpoint_ref = :checkpoint_ref, turn_state = :turn_state,
    plugin_snapshot_revision = :plugin_snapshot_revision
WHERE session_key = :session_key AND revision = :revision - 1;

-- name: commit_drop_checkpoints
-- Deletes the checkpoints below the retention floor.
DELETE FROM lash_checkpoints WHERE session_key = :session_key AND revision < :floor;

-- name: commit_current_components
-- The components that the head uses; the index leaves out earlier ones.
SELECT key, hash
FROM lash_components INDEXED BY lash_components_last
WHERE session_key = :session_key AND last_revision IS NULL;

-- name: commit_end_component
-- Ends a component that changed or was removed.
UPDATE lash_components
SET last_revision = :revision - 1
WHERE session_key = :session_key AND key = :key AND last_revision IS NULL;

-- name: commit_begin_component
-- Starts a component that is new or changed.
INSERT INTO lash_components (session_key, key, first_revision, hash)
VALUES (:session_key, :key, :revision, :hash);

-- name: commit_replace_component
-- Gives a component new bytes from this revision on, when its earlier ones are not kept.
UPDATE lash_components
SET first_revision = :revision, hash = :hash
WHERE session_key = :session_key AND key = :key AND last_revision IS NULL;

-- name: commit_replace_blob
-- Replaces bytes that no component names any more by new ones, unless the session has the new ones.
UPDATE OR IGNORE lash_blobs
SET hash = :hash, codec = :codec, size = :size, content = :content
WHERE session_key = :session_key AND hash = :replaced
    AND NOT EXISTS (SELECT 1 FROM lash_components AS c WHERE c.session_key = :session_key AND c.hash = :replaced);

-- name: commit_drop_components
-- Deletes the components that only deleted checkpoints used.
DELETE FROM lash_components
WHERE session_key = :session_key AND last_revision < :floor
RETURNING hash;

-- name: commit_drop_blobs
-- Deletes the bytes (a JSON array of hashes) that no component names any more.
DELETE FROM lash_blobs
WHERE session_key = :session_key AND hash IN (SELECT value FROM json_each(:hashes))
    AND NOT EXISTS (
        SELECT 1 FROM lash_components AS c
        WHERE c.session_key = lash_blobs.session_key AND c.hash = lash_blobs.hash
    );

-- name: commit_drop_frames
-- Deletes the frames that are not in the new list (a JSON array of ids).
DELETE FROM lash_frames
WHERE session_key = :session_key AND frame_id NOT IN (SELECT value FROM json_each(:frame_ids));

-- name: commit_frame
-- Stores a frame; an unchanged one is not written.
INSERT INTO lash_frames (session_key, frame_id, position, body)
VALUES (:session_key, :frame_id, :position, :body)
ON CONFLICT (session_key, frame_id) DO UPDATE SET position = excluded.position, body = excluded.body
WHERE lash_frames.position <> excluded.position OR lash_frames.body <> excluded.body;

-- name: commit_usage
-- Adds a row to the ledger, with the agent that the head has by now.
INSERT INTO lash_usage (
    session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens,
    committed_at_ms, agent
)
VALUES (
    :session_key, :revision, :ordinal, :source, :model, :input_tokens, :output_tokens, :cached_input_tokens,
    :reasoning_tokens, :now_ms, (SELECT agent FROM lash_sessions WHERE session_key = :session_key)
);

-- name: commit_usage_total
-- Adds to the total of one source and model, unless it would exceed 64 bits: SQLite would turn it into a floating-point
-- number.
INSERT INTO lash_usage_totals (
    session_key, source, model, first_revision, first_ordinal, input_tokens, output_tokens, cached_input_tokens,
    reasoning_tokens
)
VALUES (
    :session_key, :source, :model, :revision, :ordinal, :input_tokens, :output_tokens, :cached_input_tokens,
    :reasoning_tokens
)
ON CONFLICT (session_key, source, model) DO UPDATE
SET input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cached_input_tokens = cached_input_tokens + excluded.cached_input_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens
WHERE input_tokens <= 9223372036854775807 - excluded.input_tokens
    AND output_tokens <= 9223372036854775807 - excluded.output_tokens
    AND cached_input_tokens <= 9223372036854775807 - excluded.cached_input_tokens
    AND reasoning_tokens <= 9223372036854775807 - excluded.reasoning_tokens;

-- name: commit_stamp_turn
-- Records the commit of a turn.
INSERT INTO lash_turns (session_key, turn_id, commit_hash, result, trace, committed_at_ms)
VALUES (:session_key, :turn_id, :commit_hash, :result, :trace, :now_ms);
