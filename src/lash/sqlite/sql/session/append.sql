-- name: append_head
-- Publishes the head of an append. A session without a commit gets the given configuration and checkpoint.
UPDATE lash_sessions
SET revision = :revision, config = COALESCE(config, :config), checkpoint_ref = COALESCE(checkpoint_ref, :checkpoint_ref),
    leaf_node_id = :leaf_node_id, leaf_segment = :leaf_segment, leaf_depth = :leaf_depth,
    segment_count = :segment_count, node_seq = :node_seq, node_count = :node_count,
    first_user_message = :first_user_message, user_message_count = :user_message_count, updated_at_ms = :now_ms,
    changed = 1 + MAX(
        (SELECT COALESCE(MAX(changed), 0) FROM lash_sessions),
        (SELECT COALESCE(MAX(changed), 0) FROM lash_session_ids WHERE changed > 0)
    )
WHERE session_key = :session_key AND revision = :revision - 1;

-- name: append_move_checkpoint
-- Makes the checkpoint of the revision before that of the new one, when earlier ones are not kept.
UPDATE lash_checkpoints SET revision = :revision WHERE session_key = :session_key AND revision = :revision - 1;

-- name: append_copy_checkpoint
-- Copies the checkpoint of the revision before to the new one.
INSERT INTO lash_checkpoints (session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision)
SELECT session_key, :revision, checkpoint_ref, turn_state, plugin_snapshot_revision
FROM lash_checkpoints
WHERE session_key = :session_key AND revision = :revision - 1;
