-- fragment: trigger_columns
-- What is read of a subscription.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms

-- fragment: trigger_filters
-- What a list may be narrowed by, with its order and its end.
    AND (:definition_hash IS NULL OR t.definition_hash = :definition_hash)
    AND (:owner_session_id IS NULL OR t.owner_session_id = :owner_session_id)
    AND (:key IS NULL OR t.key = :key)
    AND (:source_type IS NULL OR t.source_type = :source_type)
    AND (:source_key IS NULL OR t.source_key = :source_key)
    AND (:enabled IS NULL OR t.enabled = :enabled)
ORDER BY t.subscription_key DESC
LIMIT :limit;

-- name: trigger_page_all
-- Subscriptions in the order of lists, narrowed by whatever is given.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t
WHERE t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters

-- name: trigger_page_key
-- The same, read by key.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_key
WHERE t.key = :key
    AND t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters

-- name: trigger_page_definition
-- The same, read by the definition of the identity.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_definition
WHERE t.definition_hash = :definition_hash
    AND t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters

-- name: trigger_page_source
-- The same, read by the key of the source.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_source
WHERE t.source_key = :source_key
    AND t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters

-- name: trigger_page_owner
-- The same, read by owner.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_owner
WHERE t.owner_session_id = :owner_session_id
    AND t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters

-- name: trigger_page_type
-- The same, read by the type of the source.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_type
WHERE t.source_type = :source_type
    AND t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters

-- name: trigger_page_disabled
-- The same, of those that are disabled.
-- include: trigger_columns
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_disabled
WHERE t.enabled = 0
    AND t.subscription_key < COALESCE(:before, 9223372036854775807)
-- include: trigger_filters
