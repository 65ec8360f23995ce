-- name: trigger_row
-- One subscription by its name.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM :"schema".lash_trigger_subscriptions AS t
WHERE t.owner_session_id = $1::text AND t.key = $2::text;

-- name: trigger_page
-- Subscriptions, newest first, filtered by the columns that are given.
SELECT
    subscription_key, subscription_id, owner_session_id, key, revision, fingerprint, definition, enabled, created_at_ms,
    updated_at_ms
FROM :"schema".lash_trigger_subscriptions
WHERE subscription_key < coalesce($1::bigint, 9223372036854775807)
    AND ($3::text IS NULL OR definition_hash = $3::text)
    AND ($4::text IS NULL OR owner_session_id = $4::text)
    AND ($5::text IS NULL OR key = $5::text)
    AND ($6::text IS NULL OR source_type = $6::text)
    AND ($7::text IS NULL OR source_key = $7::text)
    AND ($8::boolean IS NULL OR enabled = $8::boolean)
ORDER BY subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_lock
-- One subscription by its name, locked until the transaction ends.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM :"schema".lash_trigger_subscriptions AS t
WHERE t.owner_session_id = $1::text AND t.key = $2::text
FOR UPDATE;

-- name: trigger_now
-- The server's time.
SELECT :"schema".lash_now_ms();

-- name: trigger_enter_session
-- Whether a session exists; locked against deletion until the transaction ends. No row if it never existed.
SELECT deleted_at_ms IS NULL FROM :"schema".lash_session_ids WHERE session_id = $1::text FOR SHARE;

-- name: trigger_hold_session
-- Locks a session that is about to be deleted against new subscriptions until the transaction ends.
SELECT deleted_at_ms IS NULL FROM :"schema".lash_session_ids WHERE session_id = $1::text FOR UPDATE;

-- name: trigger_buried
-- The last revision of the deleted subscription of this name.
SELECT revision FROM :"schema".lash_trigger_tombstones WHERE owner_session_id = $1::text AND key = $2::text;

-- name: trigger_insert
-- Creates a subscription and returns its key, which orders deliveries; no row if the name exists by now.
INSERT INTO :"schema".lash_trigger_subscriptions (
    subscription_id, owner_session_id, key, revision, fingerprint, definition, source_type, source_key, definition_hash,
    environment_ref, enabled, created_at_ms, updated_at_ms
)
VALUES (
    $1::text, $2::text, $3::text, $4::bigint, $6::text, $7::text, $8::text, $9::text, $10::text, $11::text, true,
    $5::bigint, $5::bigint
)
ON CONFLICT (owner_session_id, key) DO NOTHING
RETURNING subscription_key;

-- name: trigger_forget_tombstone
-- Removes the tombstone of a name that was registered again.
DELETE FROM :"schema".lash_trigger_tombstones WHERE owner_session_id = $1::text AND key = $2::text;

-- name: trigger_define
-- Writes a new definition.
UPDATE :"schema".lash_trigger_subscriptions
SET revision = $2::bigint, fingerprint = $4::text, definition = $5::text, source_type = $6::text, source_key = $7::text,
    definition_hash = $8::text, environment_ref = $9::text, updated_at_ms = $3::bigint
WHERE subscription_key = $1::bigint;

-- name: trigger_switch
-- Enables or disables a subscription.
UPDATE :"schema".lash_trigger_subscriptions
SET revision = $2::bigint, updated_at_ms = $3::bigint, enabled = $4::boolean
WHERE subscription_key = $1::bigint;

-- name: trigger_delete
-- Removes a subscription and leaves a tombstone.
WITH gone AS (
    DELETE FROM :"schema".lash_trigger_subscriptions
    WHERE subscription_key = $1::bigint
    RETURNING owner_session_id, key, revision
)
INSERT INTO :"schema".lash_trigger_tombstones (owner_session_id, key, revision, deleted_at_ms)
SELECT gone.owner_session_id, gone.key, gone.revision, $2::bigint
FROM gone;

-- name: trigger_delete_session
-- Removes all subscriptions of a session, leaves tombstones, and returns their number. It locks them in the order in
-- which an emission does.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
doomed AS (
    SELECT t.subscription_key
    FROM :"schema".lash_trigger_subscriptions AS t
    WHERE t.owner_session_id = $1::text
    ORDER BY t.subscription_key
    FOR UPDATE
),
gone AS (
    DELETE FROM :"schema".lash_trigger_subscriptions AS t
    USING doomed
    WHERE t.subscription_key = doomed.subscription_key
    RETURNING t.owner_session_id, t.key, t.revision
),
buried AS (
    INSERT INTO :"schema".lash_trigger_tombstones AS b (owner_session_id, key, revision, deleted_at_ms)
    SELECT gone.owner_session_id, gone.key, gone.revision, clock.now_ms
    FROM gone, clock
)
SELECT count(*) FROM gone;

-- name: trigger_open_receipt
-- Takes an operation id unless it is taken; waits for a concurrent transaction that takes it.
INSERT INTO :"schema".lash_trigger_receipts (operation_id, request_hash, answer, created_at_ms)
VALUES ($1::text, $2::text, '', :"schema".lash_now_ms())
ON CONFLICT (operation_id) DO NOTHING;

-- name: trigger_receipt
-- The request and the answer of an operation id.
SELECT request_hash, answer FROM :"schema".lash_trigger_receipts WHERE operation_id = $1::text;

-- name: trigger_keep_receipt
-- Stores the answer of an operation.
UPDATE :"schema".lash_trigger_receipts SET answer = $2::text WHERE operation_id = $1::text;

-- name: trigger_prune_receipts
-- Removes the oldest receipts and tombstones from before a moment, and returns their number.
WITH old_receipts AS (
    SELECT r.operation_id
    FROM :"schema".lash_trigger_receipts AS r
    WHERE r.created_at_ms < $1::bigint
    ORDER BY r.created_at_ms
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
old_tombstones AS (
    SELECT b.owner_session_id, b.key
    FROM :"schema".lash_trigger_tombstones AS b
    WHERE b.deleted_at_ms < $1::bigint
    ORDER BY b.deleted_at_ms
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
receipts AS (
    DELETE FROM :"schema".lash_trigger_receipts AS r
    USING old_receipts
    WHERE r.operation_id = old_receipts.operation_id
    RETURNING 1
),
tombstones AS (
    DELETE FROM :"schema".lash_trigger_tombstones AS b
    USING old_tombstones
    WHERE b.owner_session_id = old_tombstones.owner_session_id AND b.key = old_tombstones.key
    RETURNING 1
)
SELECT (SELECT count(*) FROM receipts) + (SELECT count(*) FROM tombstones);
