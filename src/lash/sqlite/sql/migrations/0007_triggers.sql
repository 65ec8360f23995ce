-- Trigger subscriptions, occurrences and deliveries.

-- One row for each life of a subscription, in the order in which they were made. The owner is a session, or the host if
-- it is empty. The columns beside the definition are what matching and lists go by.
-- Owner: the session or the host; removed by deleting it, or with its session.
CREATE TABLE lash_trigger_subscriptions (
    subscription_key INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription_id  TEXT NOT NULL UNIQUE,
    owner_session_id TEXT NOT NULL,
    key              TEXT NOT NULL,
    revision         INTEGER NOT NULL CHECK (revision > 0),
    fingerprint      TEXT NOT NULL,
    definition       TEXT NOT NULL,
    source_type      TEXT NOT NULL,
    source_key       TEXT NOT NULL,
    definition_hash  TEXT,
    environment_ref  TEXT NOT NULL,
    enabled          INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    created_at_ms    INTEGER NOT NULL,
    updated_at_ms    INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX lash_trigger_subscriptions_name ON lash_trigger_subscriptions (owner_session_id, key);
-- Finds the subscriptions that an occurrence matches, in the order of deliveries.
CREATE INDEX lash_trigger_subscriptions_match ON lash_trigger_subscriptions (source_type, source_key, subscription_key)
WHERE enabled = 1;
-- Lists by what people filter by; each ends with the key, which is the order of lists.
CREATE INDEX lash_trigger_subscriptions_owner ON lash_trigger_subscriptions (owner_session_id, subscription_key);
CREATE INDEX lash_trigger_subscriptions_key ON lash_trigger_subscriptions (key, subscription_key);
CREATE INDEX lash_trigger_subscriptions_source ON lash_trigger_subscriptions (source_key, subscription_key);
CREATE INDEX lash_trigger_subscriptions_type ON lash_trigger_subscriptions (source_type, subscription_key);
CREATE INDEX lash_trigger_subscriptions_definition ON lash_trigger_subscriptions (definition_hash, subscription_key)
WHERE definition_hash IS NOT NULL;
CREATE INDEX lash_trigger_subscriptions_disabled ON lash_trigger_subscriptions (subscription_key) WHERE enabled = 0;
-- Asks whether an environment is still named.
CREATE INDEX lash_trigger_subscriptions_environment ON lash_trigger_subscriptions (environment_ref);

-- The last revision of a subscription that was deleted, above which the next one of its name starts.
-- Owner: the storage; removed when the name is registered again, or by pruning receipts.
CREATE TABLE lash_trigger_tombstones (
    owner_session_id TEXT NOT NULL,
    key              TEXT NOT NULL,
    revision         INTEGER NOT NULL,
    deleted_at_ms    INTEGER NOT NULL,
    PRIMARY KEY (owner_session_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX lash_trigger_tombstones_age ON lash_trigger_tombstones (deleted_at_ms);

-- What was answered to a change under an operation id, so that a repeat gets the first answer.
-- Owner: the storage; removed by pruning receipts.
CREATE TABLE lash_trigger_receipts (
    operation_id  TEXT NOT NULL PRIMARY KEY,
    request_hash  TEXT NOT NULL,
    answer        TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX lash_trigger_receipts_age ON lash_trigger_receipts (created_at_ms);

-- What happened, with the report that its emission was answered with. The id is made of source and idempotency key.
-- Owner: the storage; removed by pruning once all its processes have ended.
CREATE TABLE lash_trigger_occurrences (
    occurrence_key INTEGER PRIMARY KEY AUTOINCREMENT,
    occurrence_id  TEXT NOT NULL UNIQUE,
    request_hash   TEXT NOT NULL,
    request        TEXT NOT NULL,
    report         TEXT NOT NULL,
    occurred_at_ms INTEGER NOT NULL
) STRICT;
-- Finds what can be pruned.
CREATE INDEX lash_trigger_occurrences_age ON lash_trigger_occurrences (occurred_at_ms, occurrence_key);

-- What each occurrence meant to each subscription that matched it, in the order of the subscriptions. It outlives the
-- subscription.
-- Owner: the occurrence; removed with it.
CREATE TABLE lash_trigger_deliveries (
    occurrence_key   INTEGER NOT NULL REFERENCES lash_trigger_occurrences (occurrence_key) ON DELETE CASCADE,
    position         INTEGER NOT NULL,
    subscription_id  TEXT NOT NULL,
    owner_session_id TEXT NOT NULL,
    key              TEXT NOT NULL,
    process_id       TEXT NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('started', 'rejected')),
    reason           TEXT,
    attempts         INTEGER NOT NULL CHECK (attempts > 0),
    PRIMARY KEY (occurrence_key, position),
    UNIQUE (occurrence_key, subscription_id),
    CHECK ((state = 'rejected') = (reason IS NOT NULL))
) STRICT, WITHOUT ROWID;
