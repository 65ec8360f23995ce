-- Queued work and the keys under which it was enqueued.

-- What waits for a session. lane is command, early or late; available_at_ms is 0 once the batch is ready.
-- Owner: the session; removed by the commit that consumes it, by cancelling it, or with the session.
-- No index begins with seq: a planner would walk it through the work of all sessions to find the first of one.
CREATE TABLE :"schema".lash_batches (
    seq                 bigint GENERATED ALWAYS AS IDENTITY,
    session_key         bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    batch_id            text NOT NULL,
    source_key          text,
    lane                text NOT NULL CHECK (lane IN ('command', 'early', 'late')),
    delivery            text NOT NULL,
    slot                text NOT NULL,
    merge_key           text,
    available_at_ms     bigint NOT NULL CHECK (available_at_ms >= 0),
    enqueued_at_ms      bigint NOT NULL,
    claim_count         bigint NOT NULL DEFAULT 0 CHECK (claim_count >= 0),
    claim_id            text,
    claim_token         text,
    claim_lease_fencing bigint,
    claim_expires_at_ms bigint,
    payloads            text NOT NULL,
    PRIMARY KEY (session_key, seq),
    CHECK (
        (claim_token IS NULL) = (claim_id IS NULL)
        AND (claim_token IS NULL) = (claim_lease_fencing IS NULL)
        AND (claim_token IS NULL) = (claim_expires_at_ms IS NULL)
    )
);
-- Finds a batch by its id, and guards the id.
CREATE UNIQUE INDEX lash_batches_id ON :"schema".lash_batches (session_key, batch_id);
-- Finds the head of each lane, and the sessions that have ready work, however much is queued.
CREATE INDEX lash_batches_ready ON :"schema".lash_batches (session_key, lane, seq) WHERE available_at_ms = 0;
-- Finds delayed work that has become due, of one session and of all.
CREATE INDEX lash_batches_delayed ON :"schema".lash_batches (session_key, available_at_ms) WHERE available_at_ms > 0;
CREATE INDEX lash_batches_due ON :"schema".lash_batches (available_at_ms) WHERE available_at_ms > 0;
-- Finds what a claim holds.
CREATE INDEX lash_batches_claim ON :"schema".lash_batches (session_key, claim_token) WHERE claim_token IS NOT NULL;

-- Every source key that was used, also after its batch is gone, so that a late duplicate is recognised.
-- Owner: the session; removed with it, or by pruning what was consumed or cancelled long ago.
CREATE TABLE :"schema".lash_source_keys (
    session_key  bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    source_key   text NOT NULL,
    batch_id     text NOT NULL,
    content_hash text NOT NULL,
    state        text NOT NULL CHECK (state IN ('pending', 'consumed', 'cancelled')),
    settled_at_ms bigint,
    PRIMARY KEY (session_key, source_key),
    CHECK ((state = 'pending') = (settled_at_ms IS NULL))
);
-- Finds the keys that can be pruned.
CREATE INDEX lash_source_keys_settled ON :"schema".lash_source_keys (settled_at_ms) WHERE settled_at_ms IS NOT NULL;
