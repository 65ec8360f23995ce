-- Durable waits, and the secret that signs their keys.

-- What the storage keeps to itself. Owner: the storage; made once and never removed.
CREATE TABLE lash_secrets (
    name          TEXT NOT NULL PRIMARY KEY,
    secret        BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;

-- How often the keys of a session were revoked; it is a part of every key.
ALTER TABLE lash_sessions ADD COLUMN wait_revocations INTEGER NOT NULL DEFAULT 0 CHECK (wait_revocations >= 0);

-- Waits that were opened or resolved. Those of an earlier life or generation of their owner are never here.
-- Owner: the session or the process of the scope, removed with it or, for a session, by revoking its keys; a wait of an
-- operation belongs to the storage and is removed by pruning once resolved.
CREATE TABLE lash_waits (
    key_id         TEXT NOT NULL PRIMARY KEY,
    scope_id       TEXT NOT NULL,
    scope          TEXT NOT NULL,
    identity       TEXT NOT NULL,
    session_key    INTEGER REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    process_key    INTEGER REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    deadline_ms    INTEGER,
    resolution     TEXT,
    created_at_ms  INTEGER NOT NULL,
    resolved_at_ms INTEGER,
    CHECK ((resolution IS NULL) = (resolved_at_ms IS NULL)),
    CHECK (session_key IS NULL OR process_key IS NULL)
) STRICT, WITHOUT ROWID;
-- Removes the waits of a session or a process.
CREATE INDEX lash_waits_session ON lash_waits (session_key) WHERE session_key IS NOT NULL;
CREATE INDEX lash_waits_process ON lash_waits (process_key) WHERE process_key IS NOT NULL;
-- Lists what is waited for, in all and by scope.
CREATE INDEX lash_waits_pending ON lash_waits (key_id) WHERE resolution IS NULL;
CREATE INDEX lash_waits_scope ON lash_waits (scope_id, key_id) WHERE resolution IS NULL;
-- Finds what is over.
CREATE INDEX lash_waits_deadline ON lash_waits (deadline_ms) WHERE resolution IS NULL AND deadline_ms IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_waits_resolved ON lash_waits (resolved_at_ms)
WHERE session_key IS NULL AND process_key IS NULL AND resolved_at_ms IS NOT NULL;

-- How often waits were resolved or revoked: other processes see by it that something may have changed.
-- Owner: the storage; its one row comes with the first change and is never removed.
CREATE TABLE lash_wait_changes (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL
) STRICT;
