-- Trigger subscriptions, occurrences and deliveries.

-- One row for each life of a subscription, in the order in which they were made. The owner is a session, or the host if
-- it is empty. The columns beside the definition are what matching and lists go by.
-- Owner: the session or the host; removed by deleting it, or with its session.
CREATE TABLE :"schema".lash_trigger_subscriptions (
    subscription_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id  text NOT NULL UNIQUE,
    owner_session_id text NOT NULL,
    key              text NOT NULL,
    revision         bigint NOT NULL CHECK (revision > 0),
    fingerprint      text NOT NULL,
    definition       text NOT NULL,
    source_type      text NOT NULL,
    source_key       text NOT NULL,
    definition_hash  text,
    environment_ref  text NOT NULL,
    enabled          boolean NOT NULL,
    created_at_ms    bigint NOT NULL,
    updated_at_ms    bigint NOT NULL
);
CREATE UNIQUE INDEX lash_trigger_subscriptions_name ON :"schema".lash_trigger_subscriptions (owner_session_id, key);
-- Finds the subscriptions that an occurrence matches, in the order of deliveries.
CREATE INDEX lash_trigger_subscriptions_match
ON :"schema".lash_trigger_subscriptions (source_type, source_key, subscription_key)
WHERE enabled;
-- Lists by what people filter by; each ends with the key, which is the order of lists. The index by owner has its own
-- collation: the unique index begins with the same columns, and the planner would rate it as equal.
CREATE INDEX lash_trigger_subscriptions_owner
ON :"schema".lash_trigger_subscriptions (owner_session_id COLLATE "C", subscription_key);
CREATE INDEX lash_trigger_subscriptions_key ON :"schema".lash_trigger_subscriptions (key, subscription_key);
CREATE INDEX lash_trigger_subscriptions_source ON :"schema".lash_trigger_subscriptions (source_key, subscription_key);
CREATE INDEX lash_trigger_subscriptions_type ON :"schema".lash_trigger_subscriptions (source_type, subscription_key);
CREATE INDEX lash_trigger_subscriptions_definition
ON :"schema".lash_trigger_subscriptions (definition_hash, subscription_key)
WHERE definition_hash IS NOT NULL;
CREATE INDEX lash_trigger_subscriptions_disabled ON :"schema".lash_trigger_subscriptions (subscription_key)
WHERE NOT enabled;
-- Asks whether an environment is still named.
CREATE INDEX lash_trigger_subscriptions_environment ON :"schema".lash_trigger_subscriptions (environment_ref);

-- The last revision of a subscription that was deleted, above which the next one of its name starts.
-- Owner: the storage; removed when the name is registered again, or by pruning receipts.
CREATE TABLE :"schema".lash_trigger_tombstones (
    owner_session_id text NOT NULL,
    key              text NOT NULL,
    revision         bigint NOT NULL,
    deleted_at_ms    bigint NOT NULL,
    PRIMARY KEY (owner_session_id, key)
);
CREATE INDEX lash_trigger_tombstones_age ON :"schema".lash_trigger_tombstones (deleted_at_ms);

-- What was answered to a change under an operation id, so that a repeat gets the first answer.
-- Owner: the storage; removed by pruning receipts.
CREATE TABLE :"schema".lash_trigger_receipts (
    operation_id  text PRIMARY KEY,
    request_hash  text NOT NULL,
    answer        text NOT NULL,
    created_at_ms bigint NOT NULL
);
CREATE INDEX lash_trigger_receipts_age ON :"schema".lash_trigger_receipts (created_at_ms);

-- What happened, with the report that its emission was answered with. The id is made of source and idempotency key.
-- Owner: the storage; removed by pruning once all its processes have ended.
CREATE TABLE :"schema".lash_trigger_occurrences (
    occurrence_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    occurrence_id  text NOT NULL UNIQUE,
    request_hash   text NOT NULL,
    request        text NOT NULL,
    report         text NOT NULL,
    occurred_at_ms bigint NOT NULL
);
-- Finds what can be pruned.
CREATE INDEX lash_trigger_occurrences_age ON :"schema".lash_trigger_occurrences (occurred_at_ms, occurrence_key);

-- What each occurrence meant to each subscription that matched it, in the order of the subscriptions. It outlives the
-- subscription.
-- Owner: the occurrence; removed with it.
CREATE TABLE :"schema".lash_trigger_deliveries (
    occurrence_key   bigint NOT NULL REFERENCES :"schema".lash_trigger_occurrences (occurrence_key) ON DELETE CASCADE,
    position         bigint NOT NULL,
    subscription_id  text NOT NULL,
    owner_session_id text NOT NULL,
    key              text NOT NULL,
    process_id       text NOT NULL,
    state            text NOT NULL CHECK (state IN ('started', 'rejected')),
    reason           text,
    attempts         bigint NOT NULL CHECK (attempts > 0),
    PRIMARY KEY (occurrence_key, position),
    UNIQUE (occurrence_key, subscription_id),
    CHECK ((state = 'rejected') = (reason IS NOT NULL))
);
