-- Processes, their logs, wakes, grants and leases.

-- One row for each process. The columns beside the registration are what lists filter by; projection is the fold of the
-- log, last_sequence the number of its events.
-- Owner: the process; removed by pruning after its end.
CREATE TABLE lash_processes (
    process_key           INTEGER PRIMARY KEY AUTOINCREMENT,
    process_id            TEXT NOT NULL UNIQUE,
    registration_hash     TEXT NOT NULL,
    registration          TEXT NOT NULL,
    recovery              TEXT NOT NULL CHECK (recovery IN ('rerunnable', 'owner_bound', 'external')),
    kind                  TEXT NOT NULL,
    label                 TEXT,
    definition_hash       TEXT,
    originator_session_id TEXT,
    wake_session_id       TEXT,
    environment_ref       TEXT,
    status                TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled', 'abandoned')),
    waiting               INTEGER NOT NULL CHECK (waiting IN (0, 1)),
    projection            TEXT NOT NULL,
    last_sequence         INTEGER NOT NULL CHECK (last_sequence >= 0),
    created_at_ms         INTEGER NOT NULL,
    updated_at_ms         INTEGER NOT NULL,
    ended_at_ms           INTEGER,
    CHECK ((status = 'running') = (ended_at_ms IS NULL))
) STRICT;
-- The work list, by id.
CREATE INDEX lash_processes_runnable ON lash_processes (process_id)
WHERE status = 'running' AND recovery <> 'external';
-- Lists by what people filter by; each ends with the key, which is the order of lists.
CREATE INDEX lash_processes_status ON lash_processes (status, process_key);
CREATE INDEX lash_processes_waiting ON lash_processes (process_key) WHERE waiting = 1;
CREATE INDEX lash_processes_kind ON lash_processes (kind, process_key);
CREATE INDEX lash_processes_label ON lash_processes (label, process_key) WHERE label IS NOT NULL;
CREATE INDEX lash_processes_definition ON lash_processes (definition_hash, process_key)
WHERE definition_hash IS NOT NULL;
CREATE INDEX lash_processes_originator ON lash_processes (originator_session_id, process_key)
WHERE originator_session_id IS NOT NULL;
CREATE INDEX lash_processes_wake ON lash_processes (wake_session_id, process_key) WHERE wake_session_id IS NOT NULL;
-- Asks whether an environment is still named.
CREATE INDEX lash_processes_environment ON lash_processes (environment_ref) WHERE environment_ref IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_processes_ended ON lash_processes (ended_at_ms) WHERE ended_at_ms IS NOT NULL;

-- The log of each process. Owner: the process; removed with it.
CREATE TABLE lash_process_events (
    process_key    INTEGER NOT NULL REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    sequence       INTEGER NOT NULL CHECK (sequence > 0),
    event_type     TEXT NOT NULL,
    replay_key     TEXT,
    payload_hash   TEXT NOT NULL,
    payload        TEXT NOT NULL,
    wake           TEXT,
    occurred_at_ms INTEGER NOT NULL,
    PRIMARY KEY (process_key, sequence)
) STRICT;
-- Makes an append under a replay key happen once.
CREATE UNIQUE INDEX lash_process_events_replay ON lash_process_events (process_key, replay_key)
WHERE replay_key IS NOT NULL;
-- Finds and counts the events of one type, signals above all.
CREATE INDEX lash_process_events_type ON lash_process_events (process_key, event_type, sequence);

-- The wakes of events and what became of them. Owner: the process; removed with it.
CREATE TABLE lash_wakes (
    process_key       INTEGER NOT NULL REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    sequence          INTEGER NOT NULL,
    target_session_id TEXT,
    batch_id          TEXT,
    state             TEXT NOT NULL
        CHECK (state IN ('no_target', 'queued', 'acknowledged', 'merged', 'undeliverable')),
    PRIMARY KEY (process_key, sequence)
) STRICT, WITHOUT ROWID;
-- Acknowledges the wake of a batch that a commit consumes.
CREATE INDEX lash_wakes_batch ON lash_wakes (batch_id) WHERE state = 'queued';
-- Finds the wakes of a session that is deleted, and the wakes that found no session.
CREATE INDEX lash_wakes_target ON lash_wakes (target_session_id) WHERE state = 'queued';
CREATE INDEX lash_wakes_undeliverable ON lash_wakes (process_key, sequence) WHERE state = 'undeliverable';

-- Which scope may see which process; frame_id is empty for a whole session.
-- Owner: the session and the process; removed with either, or by revoking it.
CREATE TABLE lash_grants (
    session_id  TEXT NOT NULL,
    frame_id    TEXT NOT NULL,
    process_key INTEGER NOT NULL REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    kind        TEXT,
    label       TEXT,
    PRIMARY KEY (session_id, frame_id, process_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX lash_grants_process ON lash_grants (process_key, session_id, frame_id);

-- The lease of each process. The row outlives its holder, so fencing numbers only grow.
-- Owner: the process; made and removed with it.
CREATE TABLE lash_process_leases (
    process_key    INTEGER PRIMARY KEY REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    fencing        INTEGER NOT NULL DEFAULT 0 CHECK (fencing >= 0),
    owner_id       TEXT,
    incarnation_id TEXT,
    process        TEXT,
    token          TEXT,
    claimed_at_ms  INTEGER NOT NULL DEFAULT 0,
    expires_at_ms  INTEGER NOT NULL DEFAULT 0,
    CHECK ((token IS NULL) = (owner_id IS NULL) AND (token IS NULL) = (incarnation_id IS NULL))
) STRICT;

-- Every change of every process, in an order that a reader can resume.
-- Owner: the storage; removed by pruning behind the cursor of the slowest reader.
CREATE TABLE lash_process_changes (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    process_id     TEXT NOT NULL,
    kind           TEXT NOT NULL,
    sequence       INTEGER,
    status         TEXT,
    occurred_at_ms INTEGER NOT NULL
) STRICT;

-- What is left of a process that was pruned. Owner: the storage; removed when the id is registered again.
CREATE TABLE lash_process_tombstones (
    process_id   TEXT NOT NULL PRIMARY KEY,
    status       TEXT NOT NULL,
    fencing      INTEGER NOT NULL,
    pruned_at_ms INTEGER NOT NULL
) STRICT;
