-- name: trigger_row
-- One subscription by its name.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM lash_trigger_subscriptions AS t
WHERE t.owner_session_id = :owner_session_id AND t.key = :key;

-- name: trigger_page
-- Subscriptions, newest first, filtered by the columns that are given.
SELECT
    subscription_key, subscription_id, owner_session_id, key, revision, fingerprint, definition, enabled, created_at_ms,
    updated_at_ms
FROM lash_trigger_subscriptions
WHERE subscription_key < COALESCE(:before, 9223372036854775807)
    AND (:definition_hash IS NULL OR definition_hash = :definition_hash)
    AND (:owner_session_id IS NULL OR owner_session_id = :owner_session_id)
    AND (:key IS NULL OR key = :key)
    AND (:source_type IS NULL OR source_type = :source_type)
    AND (:source_key IS NULL OR source_key = :source_key)
    AND (:enabled IS NULL OR enabled = :enabled)
ORDER BY subscription_key DESC
LIMIT :limit;

-- name: trigger_buried
-- The last revision of the deleted subscription of this name.
SELECT revision FROM lash_trigger_tombstones WHERE owner_session_id = :owner_session_id AND key = :key;

-- name: trigger_insert
-- Creates a subscription and returns its key, which orders deliveries.
INSERT INTO lash_trigger_subscriptions (
    subscription_id, owner_session_id, key, revision, fingerprint, definition, source_type, source_key, definition_hash,
    environment_ref, enabled, created_at_ms, updated_at_ms
)
VALUES (
    :subscription_id, :owner_session_id, :key, :revision, :fingerprint, :definition, :source_type, :source_key,
    :definition_hash, :environment_ref, 1, :now_ms, :now_ms
)
RETURNING subscription_key;

-- name: trigger_forget_tombstone
-- Removes the tombstone of a name that was registered again.
DELETE FROM lash_trigger_tombstones WHERE owner_session_id = :owner_session_id AND key = :key;

-- name: trigger_define
-- Writes a new definition.
UPDATE lash_trigger_subscriptions
SET revision = :revision, fingerprint = :fingerprint, definition = :definition, source_type = :source_type,
    source_key = :source_key, definition_hash = :definition_hash, environment_ref = :environment_ref,
    updated_at_ms = :now_ms
WHERE subscription_key = :subscription_key;

-- name: trigger_switch
-- Enables or disables a subscription.
UPDATE lash_trigger_subscriptions
SET revision = :revision, enabled = :enabled, updated_at_ms = :now_ms
WHERE subscription_key = :subscription_key;

-- name: trigger_bury
-- Leaves a tombstone.
INSERT INTO lash_trigger_tombstones (owner_session_id, key, revision, deleted_at_ms)
SELECT t.owner_session_id, t.key, t.revision, :now_ms
FROM lash_trigger_subscriptions AS t
WHERE t.subscription_key = :subscription_key;

-- name: trigger_delete
-- Removes a subscription.
DELETE FROM lash_trigger_subscriptions WHERE subscription_key = :subscription_key;

-- name: trigger_bury_session
-- Leaves tombstones for all subscriptions of a session.
INSERT INTO lash_trigger_tombstones (owner_session_id, key, revision, deleted_at_ms)
SELECT t.owner_session_id, t.key, t.revision, :now_ms
FROM lash_trigger_subscriptions AS t
WHERE t.owner_session_id = :session_id;

-- name: trigger_delete_session
-- Removes all subscriptions of a session.
DELETE FROM lash_trigger_subscriptions WHERE owner_session_id = :session_id;

-- name: trigger_open_receipt
-- Takes an operation id unless it is taken.
INSERT INTO lash_trigger_receipts (operation_id, request_hash, answer, created_at_ms)
VALUES (:operation_id, :request_hash, '', :now_ms)
ON CONFLICT (operation_id) DO NOTHING;

-- name: trigger_receipt
-- The request and the answer of an operation id.
SELECT request_hash, answer FROM lash_trigger_receipts WHERE operation_id = :operation_id;

-- name: trigger_keep_receipt
-- Stores the answer of an operation.
UPDATE lash_trigger_receipts SET answer = :answer WHERE operation_id = :operation_id;

-- name: trigger_prune_receipts
-- Removes the oldest receipts from before a moment.
DELETE FROM lash_trigger_receipts
WHERE operation_id IN (
    SELECT r.operation_id FROM lash_trigger_receipts AS r
    WHERE r.created_at_ms < :before_ms
    ORDER BY r.created_at_ms
    LIMIT :limit
);

-- name: trigger_prune_tombstones
-- Removes the oldest tombstones from before a moment.
DELETE FROM lash_trigger_tombstones
WHERE (owner_session_id, key) IN (
    SELECT b.owner_session_id, b.key FROM lash_trigger_tombstones AS b
    WHERE b.deleted_at_ms < :before_ms
    ORDER BY b.deleted_at_ms
    LIMIT :limit
);
