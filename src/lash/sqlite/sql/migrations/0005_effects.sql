-- Recorded effects, and the groups that keep the order in which they ended.

-- One row for each effect that was begun or recorded. session_key or process_key names the owner of its scope; both are
-- null for an operation of the host. Who ran it stays stored after it ended, so that a repeat is recognised.
-- Owner: the scope; removed by the commit of its turn, with its session or process, or by retiring the scope.
CREATE TABLE lash_effects (
    scope_id       TEXT NOT NULL,
    replay_key     TEXT NOT NULL,
    session_key    INTEGER REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    process_key    INTEGER REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    envelope       TEXT NOT NULL,
    envelope_hash  TEXT NOT NULL,
    status         TEXT NOT NULL CHECK (status IN ('in_progress', 'completed', 'failed')),
    outcome        TEXT,
    error          TEXT,
    once           INTEGER NOT NULL CHECK (once IN (0, 1)),
    owner_id       TEXT,
    incarnation_id TEXT,
    process        TEXT,
    token          TEXT,
    fencing        INTEGER NOT NULL CHECK (fencing >= 0),
    expires_at_ms  INTEGER,
    due_at_ms      INTEGER,
    group_key      TEXT,
    settled_rank   INTEGER CHECK (settled_rank > 0),
    created_at_ms  INTEGER NOT NULL,
    updated_at_ms  INTEGER NOT NULL,
    PRIMARY KEY (scope_id, replay_key),
    CHECK (session_key IS NULL OR process_key IS NULL),
    CHECK ((status = 'completed') = (outcome IS NOT NULL) AND (status = 'failed') = (error IS NOT NULL)),
    CHECK ((token IS NULL) = (owner_id IS NULL) AND (token IS NULL) = (incarnation_id IS NULL)),
    CHECK ((expires_at_ms IS NOT NULL) = (token IS NOT NULL AND status = 'in_progress')),
    CHECK ((settled_rank IS NOT NULL) = (group_key IS NOT NULL AND status <> 'in_progress'))
) STRICT;
-- Finds what goes with a session or a process.
CREATE INDEX lash_effects_session ON lash_effects (session_key) WHERE session_key IS NOT NULL;
CREATE INDEX lash_effects_process ON lash_effects (process_key) WHERE process_key IS NOT NULL;
-- Reads a group in the order in which its effects ended; each place is given once.
CREATE UNIQUE INDEX lash_effects_rank ON lash_effects (scope_id, group_key, settled_rank)
WHERE settled_rank IS NOT NULL;

-- Groups of effects: for how many they were opened, how many have begun and how many have ended.
-- Owner: the scope; removed with its effects.
CREATE TABLE lash_effect_groups (
    scope_id      TEXT NOT NULL,
    group_key     TEXT NOT NULL,
    session_key   INTEGER REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    process_key   INTEGER REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    size          INTEGER NOT NULL CHECK (size > 0),
    members       INTEGER NOT NULL DEFAULT 0,
    settled       INTEGER NOT NULL DEFAULT 0,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (scope_id, group_key),
    CHECK (session_key IS NULL OR process_key IS NULL),
    CHECK (0 <= settled AND settled <= members AND members <= size)
) STRICT;
CREATE INDEX lash_effect_groups_session ON lash_effect_groups (session_key) WHERE session_key IS NOT NULL;
CREATE INDEX lash_effect_groups_process ON lash_effect_groups (process_key) WHERE process_key IS NOT NULL;
