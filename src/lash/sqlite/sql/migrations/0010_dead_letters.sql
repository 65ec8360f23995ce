-- What was given up, kept beside the queue.

-- Work that failed too often, with the claim under which it died. place orders it as it died, attempts are claim_count.
-- Owner: the session; removed with it, by requeueing or by discarding it.
CREATE TABLE lash_dead_letters (
    place          INTEGER PRIMARY KEY AUTOINCREMENT,
    session_key    INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    batch_id       TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    source_key     TEXT,
    lane           TEXT NOT NULL CHECK (lane IN ('command', 'early', 'late')),
    delivery       TEXT NOT NULL,
    slot           TEXT NOT NULL,
    merge_key      TEXT,
    enqueued_at_ms INTEGER NOT NULL,
    claim_count    INTEGER NOT NULL CHECK (claim_count >= 0),
    payloads       TEXT NOT NULL,
    claim_token    TEXT NOT NULL,
    reason         TEXT NOT NULL,
    error          TEXT NOT NULL,
    died_at_ms     INTEGER NOT NULL
) STRICT;
-- Finds a dead letter by the id of its batch, and guards the id.
CREATE UNIQUE INDEX lash_dead_letters_id ON lash_dead_letters (session_key, batch_id);
-- Lists those of a session.
CREATE INDEX lash_dead_letters_session ON lash_dead_letters (session_key, place);
