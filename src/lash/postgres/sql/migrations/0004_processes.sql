-- Processes, their logs, wakes, grants and leases.

-- One row for each process. The columns beside the registration are what lists filter by; projection is the fold of the
-- log, last_sequence the number of its events. Ids are ordered by their bytes, as they are on SQLite.
-- Owner: the process; removed by pruning after its end.
CREATE TABLE :"schema".lash_processes (
    process_key           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    process_id            text COLLATE "C" NOT NULL UNIQUE,
    registration_hash     text NOT NULL,
    registration          text NOT NULL,
    recovery              text NOT NULL CHECK (recovery IN ('rerunnable', 'owner_bound', 'external')),
    kind                  text NOT NULL,
    label                 text,
    definition_hash       text,
    originator_session_id text,
    wake_session_id       text,
    environment_ref       text,
    status                text NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled', 'abandoned')),
    waiting               boolean NOT NULL,
    projection            text NOT NULL,
    last_sequence         bigint NOT NULL CHECK (last_sequence >= 0),
    created_at_ms         bigint NOT NULL,
    updated_at_ms         bigint NOT NULL,
    ended_at_ms           bigint,
    CHECK ((status = 'running') = (ended_at_ms IS NULL))
) WITH (fillfactor = 70);
-- The work list, by id.
CREATE INDEX lash_processes_runnable ON :"schema".lash_processes (process_id)
WHERE status = 'running' AND recovery <> 'external';
-- Lists by what people filter by; each ends with the key, which is the order of lists.
CREATE INDEX lash_processes_status ON :"schema".lash_processes (status, process_key);
CREATE INDEX lash_processes_waiting ON :"schema".lash_processes (process_key) WHERE waiting;
CREATE INDEX lash_processes_kind ON :"schema".lash_processes (kind, process_key);
CREATE INDEX lash_processes_label ON :"schema".lash_processes (label, process_key) WHERE label IS NOT NULL;
CREATE INDEX lash_processes_definition ON :"schema".lash_processes (definition_hash, process_key)
WHERE definition_hash IS NOT NULL;
CREATE INDEX lash_processes_originator ON :"schema".lash_processes (originator_session_id, process_key)
WHERE originator_session_id IS NOT NULL;
CREATE INDEX lash_processes_wake ON :"schema".lash_processes (wake_session_id, process_key)
WHERE wake_session_id IS NOT NULL;
-- Asks whether an environment is still named.
CREATE INDEX lash_processes_environment ON :"schema".lash_processes (environment_ref) WHERE environment_ref IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_processes_ended ON :"schema".lash_processes (ended_at_ms) WHERE ended_at_ms IS NOT NULL;

-- The log of each process. Owner: the process; removed with it.
CREATE TABLE :"schema".lash_process_events (
    process_key    bigint NOT NULL REFERENCES :"schema".lash_processes (process_key) ON DELETE CASCADE,
    sequence       bigint NOT NULL CHECK (sequence > 0),
    event_type     text NOT NULL,
    replay_key     text,
    payload_hash   text NOT NULL,
    payload        text NOT NULL,
    wake           text,
    occurred_at_ms bigint NOT NULL,
    PRIMARY KEY (process_key, sequence)
);
-- Makes an append under a replay key happen once.
CREATE UNIQUE INDEX lash_process_events_replay ON :"schema".lash_process_events (process_key, replay_key)
WHERE replay_key IS NOT NULL;
-- Finds and counts the events of one type, signals above all.
CREATE INDEX lash_process_events_type ON :"schema".lash_process_events (process_key, event_type, sequence);

-- The wakes of events and what became of them. Owner: the process; removed with it.
CREATE TABLE :"schema".lash_wakes (
    process_key       bigint NOT NULL REFERENCES :"schema".lash_processes (process_key) ON DELETE CASCADE,
    sequence          bigint NOT NULL,
    target_session_id text,
    batch_id          text,
    state             text NOT NULL
        CHECK (state IN ('no_target', 'queued', 'acknowledged', 'merged', 'undeliverable')),
    PRIMARY KEY (process_key, sequence)
);
-- Acknowledges the wake of a batch that a commit consumes.
CREATE INDEX lash_wakes_batch ON :"schema".lash_wakes (batch_id) WHERE state = 'queued';
-- Finds the wakes of a session that is deleted, and the wakes that found no session.
CREATE INDEX lash_wakes_target ON :"schema".lash_wakes (target_session_id) WHERE state = 'queued';
CREATE INDEX lash_wakes_undeliverable ON :"schema".lash_wakes (process_key, sequence) WHERE state = 'undeliverable';

-- Which scope may see which process; frame_id is empty for a whole session.
-- Owner: the session and the process; removed with either, or by revoking it.
CREATE TABLE :"schema".lash_grants (
    session_id  text COLLATE "C" NOT NULL,
    frame_id    text COLLATE "C" NOT NULL,
    process_key bigint NOT NULL REFERENCES :"schema".lash_processes (process_key) ON DELETE CASCADE,
    kind        text,
    label       text,
    PRIMARY KEY (session_id, frame_id, process_key)
);
CREATE INDEX lash_grants_process ON :"schema".lash_grants (process_key, session_id, frame_id);

-- The lease of each process. The row outlives its holder, so fencing numbers only grow.
-- Owner: the process; made and removed with it.
CREATE TABLE :"schema".lash_process_leases (
    process_key    bigint PRIMARY KEY REFERENCES :"schema".lash_processes (process_key) ON DELETE CASCADE,
    fencing        bigint NOT NULL DEFAULT 0 CHECK (fencing >= 0),
    owner_id       text,
    incarnation_id text,
    process        text,
    token          text,
    claimed_at_ms  bigint NOT NULL DEFAULT 0,
    expires_at_ms  bigint NOT NULL DEFAULT 0,
    CHECK ((token IS NULL) = (owner_id IS NULL) AND (token IS NULL) = (incarnation_id IS NULL))
) WITH (fillfactor = 70);

-- Every change of every process. Sequence numbers become visible out of order, so a row also carries its transaction:
-- a reader takes what lies below the oldest one that still runs, and resumes behind the last (xid, seq) it took.
-- Owner: the storage; removed by pruning behind the cursor of the slowest reader.
CREATE TABLE :"schema".lash_process_changes (
    seq            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
    process_id     text COLLATE "C" NOT NULL,
    kind           text NOT NULL,
    sequence       bigint,
    status         text,
    occurred_at_ms bigint NOT NULL
);
-- Reads the feed in its order.
CREATE INDEX lash_process_changes_feed ON :"schema".lash_process_changes (xid, seq);

-- What is left of a process that was pruned. Owner: the storage; removed when the id is registered again.
CREATE TABLE :"schema".lash_process_tombstones (
    process_id   text COLLATE "C" PRIMARY KEY,
    status       text NOT NULL,
    fencing      bigint NOT NULL,
    pruned_at_ms bigint NOT NULL
);
