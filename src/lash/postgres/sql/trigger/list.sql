-- fragment: trigger_columns
-- What is read of a subscription.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms

-- fragment: trigger_filters
-- What a list may be narrowed by, in a form that no index is chosen for.
    AND CASE
        WHEN ($3::text IS NULL OR t.definition_hash = $3::text)
            AND ($4::text IS NULL OR t.owner_session_id = $4::text)
            AND ($5::text IS NULL OR t.key = $5::text)
            AND ($6::text IS NULL OR t.source_type = $6::text)
            AND ($7::text IS NULL OR t.source_key = $7::text)
            AND ($8::boolean IS NULL OR t.enabled = $8::boolean)
            THEN true
        ELSE false
    END

-- name: trigger_page_all
-- Subscriptions in the order of lists, narrowed by whatever is given. CASE keeps the planner from a guess at how
-- many fit.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE t.subscription_key < coalesce($1::bigint, 9223372036854775807)
-- include: trigger_filters
ORDER BY t.subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_page_key
-- The same, read by key. A range and an order over two columns leave no other index to choose.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE (t.key, t.subscription_key) < ($5::text, coalesce($1::bigint, 9223372036854775807))
    AND t.key >= $5::text
-- include: trigger_filters
ORDER BY t.key DESC, t.subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_page_definition
-- The same, read by the definition of the identity.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE (t.definition_hash, t.subscription_key) < ($3::text, coalesce($1::bigint, 9223372036854775807))
    AND t.definition_hash >= $3::text
-- include: trigger_filters
ORDER BY t.definition_hash DESC, t.subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_page_source
-- The same, read by the key of the source.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE (t.source_key, t.subscription_key) < ($7::text, coalesce($1::bigint, 9223372036854775807))
    AND t.source_key >= $7::text
-- include: trigger_filters
ORDER BY t.source_key DESC, t.subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_page_owner
-- The same, read by owner.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE (t.owner_session_id COLLATE "C", t.subscription_key) < ($4::text, coalesce($1::bigint, 9223372036854775807))
    AND t.owner_session_id COLLATE "C" >= $4::text
-- include: trigger_filters
ORDER BY t.owner_session_id COLLATE "C" DESC, t.subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_page_type
-- The same, read by the type of the source.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE (t.source_type, t.subscription_key) < ($6::text, coalesce($1::bigint, 9223372036854775807))
    AND t.source_type >= $6::text
-- include: trigger_filters
ORDER BY t.source_type DESC, t.subscription_key DESC
LIMIT $2::bigint;

-- name: trigger_page_disabled
-- The same, of those that are disabled.
-- include: trigger_columns
FROM :"schema".lash_trigger_subscriptions AS t
WHERE t.subscription_key < coalesce($1::bigint, 9223372036854775807)
    AND NOT t.enabled
-- include: trigger_filters
ORDER BY t.subscription_key DESC
LIMIT $2::bigint;
