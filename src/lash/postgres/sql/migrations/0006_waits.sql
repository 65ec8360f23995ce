-- Durable waits, and the secret that signs their keys.

-- What the storage keeps to itself. Owner: the storage; made once and never removed.
CREATE TABLE :"schema".lash_secrets (
    name          text PRIMARY KEY,
    secret        bytea NOT NULL,
    created_at_ms bigint NOT NULL
);

-- How often the keys of a session were revoked; it is a part of every key.
ALTER TABLE :"schema".lash_sessions
ADD COLUMN wait_revocations bigint NOT NULL DEFAULT 0 CHECK (wait_revocations >= 0);

-- Waits that were opened or resolved. Those of an earlier life or generation of their owner are never here.
-- Owner: the session or the process of the scope, removed with it or, for a session, by revoking its keys; a wait of an
-- operation belongs to the storage and is removed by pruning once resolved.
CREATE TABLE :"schema".lash_waits (
    key_id         text COLLATE "C" PRIMARY KEY,
    scope_id       text COLLATE "C" NOT NULL,
    scope          text NOT NULL,
    identity       text NOT NULL,
    session_key    bigint REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    process_key    bigint REFERENCES :"schema".lash_processes (process_key) ON DELETE CASCADE,
    deadline_ms    bigint,
    resolution     text,
    created_at_ms  bigint NOT NULL,
    resolved_at_ms bigint,
    CHECK ((resolution IS NULL) = (resolved_at_ms IS NULL)),
    CHECK (session_key IS NULL OR process_key IS NULL)
) WITH (fillfactor = 70);
-- Removes the waits of a session or a process.
CREATE INDEX lash_waits_session ON :"schema".lash_waits (session_key) WHERE session_key IS NOT NULL;
CREATE INDEX lash_waits_process ON :"schema".lash_waits (process_key) WHERE process_key IS NOT NULL;
-- Lists what is waited for, in all and by scope.
CREATE INDEX lash_waits_pending ON :"schema".lash_waits (key_id) WHERE resolution IS NULL;
CREATE INDEX lash_waits_scope ON :"schema".lash_waits (scope_id, key_id) WHERE resolution IS NULL;
-- Finds what is over.
CREATE INDEX lash_waits_deadline ON :"schema".lash_waits (deadline_ms)
WHERE resolution IS NULL AND deadline_ms IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_waits_resolved ON :"schema".lash_waits (resolved_at_ms)
WHERE session_key IS NULL AND process_key IS NULL AND resolved_at_ms IS NOT NULL;
