-- What was given up, kept beside the queue.

-- Work that failed too often, with the claim under which it died. place orders it as it died, attempts are claim_count.
-- Owner: the session; removed with it, by requeueing or by discarding it.
CREATE TABLE :"schema".lash_dead_letters (
    place          bigint GENERATED ALWAYS AS IDENTITY,
    session_key    bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    batch_id       text NOT NULL,
    seq            bigint NOT NULL,
    source_key     text,
    lane           text NOT NULL CHECK (lane IN ('command', 'early', 'late')),
    delivery       text NOT NULL,
    slot           text NOT NULL,
    merge_key      text,
    enqueued_at_ms bigint NOT NULL,
    claim_count    bigint NOT NULL CHECK (claim_count >= 0),
    payloads       text NOT NULL,
    claim_token    text NOT NULL,
    reason         text NOT NULL,
    error          text NOT NULL,
    died_at_ms     bigint NOT NULL,
    PRIMARY KEY (session_key, place)
);
-- Finds a dead letter by the id of its batch, and guards the id.
CREATE UNIQUE INDEX lash_dead_letters_id ON :"schema".lash_dead_letters (session_key, batch_id);
-- Lists those of all sessions. The sum keeps a planner from walking it to find those of one.
CREATE INDEX lash_dead_letters_all ON :"schema".lash_dead_letters ((place + 0));
