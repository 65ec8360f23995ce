-- Sessions, their graphs, checkpoints, ledgers and leases.
-- Every table says who owns its rows and what removes them.

-- Which migrations were applied. Owner: the storage; never removed.
CREATE TABLE lash_migrations (
    number        INTEGER PRIMARY KEY,
    name          TEXT NOT NULL,
    applied_at_ms INTEGER NOT NULL
) STRICT;

-- One row for each session: its metadata and its head. The head is absent until the first commit.
-- Owner: the session; removed by deleting it. session_key is never used again, session_id may be.
CREATE TABLE lash_sessions (
    session_key        INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id         TEXT NOT NULL UNIQUE,
    name               TEXT NOT NULL,
    created_at_ms      INTEGER NOT NULL,
    model              TEXT NOT NULL,
    cwd                TEXT,
    relation           TEXT NOT NULL,
    revision           INTEGER NOT NULL CHECK (revision >= 0),
    config             TEXT,
    current_frame_id   TEXT,
    checkpoint_ref     TEXT,
    leaf_node_id       TEXT,
    leaf_segment       INTEGER,
    leaf_depth         INTEGER,
    segment_count      INTEGER NOT NULL DEFAULT 0 CHECK (segment_count >= 0),
    node_seq           INTEGER NOT NULL DEFAULT 0 CHECK (node_seq >= 0),
    node_count         INTEGER NOT NULL DEFAULT 0 CHECK (node_count >= 0),
    first_user_message TEXT NOT NULL DEFAULT '',
    user_message_count INTEGER NOT NULL DEFAULT 0 CHECK (user_message_count >= 0),
    updated_at_ms      INTEGER NOT NULL,
    CHECK ((config IS NULL) = (checkpoint_ref IS NULL)),
    CHECK ((leaf_node_id IS NULL) = (leaf_segment IS NULL) AND (leaf_segment IS NULL) = (leaf_depth IS NULL))
) STRICT;

-- Every session id that was ever used. Its numbers are those from which the session of this id started; once it is
-- deleted, the last ones it reached, above which its successor starts.
-- Owner: the storage; never removed. It is the tombstone of a deleted session.
CREATE TABLE lash_session_ids (
    session_id    TEXT NOT NULL PRIMARY KEY,
    revision      INTEGER NOT NULL DEFAULT 0 CHECK (revision >= 0),
    fencing       INTEGER NOT NULL DEFAULT 0 CHECK (fencing >= 0),
    deleted_at_ms INTEGER
) STRICT;

-- The lease of each session. The row outlives its holder, so fencing numbers only grow.
-- Owner: the session; made and removed with it.
CREATE TABLE lash_session_leases (
    session_key    INTEGER PRIMARY KEY REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    fencing        INTEGER NOT NULL DEFAULT 0 CHECK (fencing >= 0),
    owner_id       TEXT,
    incarnation_id TEXT,
    process        TEXT,
    token          TEXT,
    claimed_at_ms  INTEGER NOT NULL DEFAULT 0,
    expires_at_ms  INTEGER NOT NULL DEFAULT 0,
    CHECK ((token IS NULL) = (owner_id IS NULL) AND (token IS NULL) = (incarnation_id IS NULL))
) STRICT;

-- Linear runs of nodes, and where each left its parent run. Numbers are never used again within a session. Segment 0 is
-- that of a fork: it continues the path that the fork inherits (lash_inherited). A vacuum closes the segments from
-- which it takes nodes, so that no place is used again.
-- Owner: the session; removed by replacing its graph, or by deleting it. What a fork still inherits then stays, and goes
-- with the last such fork.
CREATE TABLE lash_segments (
    session_key    INTEGER NOT NULL,
    segment        INTEGER NOT NULL CHECK (segment >= 0),
    parent_segment INTEGER,
    parent_depth   INTEGER,
    closed         INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
    PRIMARY KEY (session_key, segment),
    CHECK ((parent_segment IS NULL) = (parent_depth IS NULL))
) STRICT, WITHOUT ROWID;

-- The path that a fork inherits, as runs of depths on the segments of other sessions: those above floor, up to ceiling.
-- To the fork these nodes lie on its own segment 0. A run never changes, and its nodes cannot be removed.
-- Owner: the fork; removed by deleting it or by replacing its graph.
CREATE TABLE lash_inherited (
    session_key INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    owner_key   INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    floor       INTEGER NOT NULL CHECK (floor >= -1),
    ceiling     INTEGER NOT NULL,
    PRIMARY KEY (session_key, owner_key, segment),
    FOREIGN KEY (owner_key, segment) REFERENCES lash_segments (session_key, segment),
    CHECK (floor < ceiling)
) STRICT, WITHOUT ROWID;
-- Asks who inherits from a session or a segment.
CREATE INDEX lash_inherited_owner ON lash_inherited (owner_key, segment);

-- The entries of the conversation graphs. seq is the order of insertion within a session.
-- Owner: the segment; removed with it, by deleting the session unless a fork still inherits them, or by a vacuum once
-- tombstoned.
CREATE TABLE lash_nodes (
    session_key        INTEGER NOT NULL,
    segment            INTEGER NOT NULL,
    depth              INTEGER NOT NULL CHECK (depth >= 0),
    seq                INTEGER NOT NULL,
    node_id            TEXT NOT NULL,
    parent_node_id     TEXT,
    user_message       INTEGER NOT NULL CHECK (user_message IN (0, 1)),
    tombstoned_at_ms   INTEGER,
    body               TEXT NOT NULL,
    FOREIGN KEY (session_key, segment) REFERENCES lash_segments (session_key, segment) ON DELETE CASCADE
) STRICT;
-- Reads paths as ranges, and guards against two nodes at one place.
CREATE UNIQUE INDEX lash_nodes_place ON lash_nodes (session_key, segment, depth);
-- Finds a node by its id, and guards the id.
CREATE UNIQUE INDEX lash_nodes_id ON lash_nodes (session_key, node_id);

-- The frames of a session's head. Owner: the session; a commit replaces the list.
CREATE TABLE lash_frames (
    session_key INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    frame_id    TEXT NOT NULL,
    position    INTEGER NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (session_key, frame_id)
) STRICT;

-- The small part of the checkpoint of each revision that is kept.
-- Owner: the session; a commit removes what its retention policy no longer keeps.
CREATE TABLE lash_checkpoints (
    session_key              INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    revision                 INTEGER NOT NULL,
    checkpoint_ref           TEXT NOT NULL,
    turn_state               TEXT NOT NULL,
    plugin_snapshot_revision INTEGER,
    PRIMARY KEY (session_key, revision)
) STRICT;

-- Which component had which bytes, from its first revision to its last (NULL: still).
-- Owner: the session; removed like the checkpoints that they belong to.
CREATE TABLE lash_components (
    session_key    INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    key            TEXT NOT NULL,
    first_revision INTEGER NOT NULL,
    last_revision  INTEGER,
    hash           TEXT NOT NULL,
    PRIMARY KEY (session_key, key, first_revision)
) STRICT, WITHOUT ROWID;
-- Finds what is current (NULL) and what falls below the retention floor, without reading the history between.
CREATE INDEX lash_components_last ON lash_components (session_key, last_revision);
-- Asks whether bytes are still used.
CREATE INDEX lash_components_hash ON lash_components (session_key, hash);

-- Bytes by the hash of their plain form, once for each session.
-- Owner: the components of the session; removed with the last that names them.
CREATE TABLE lash_blobs (
    session_key INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    hash        TEXT NOT NULL,
    codec       TEXT NOT NULL,
    size        INTEGER NOT NULL CHECK (size >= 0),
    content     BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX lash_blobs_hash ON lash_blobs (session_key, hash);

-- The ledger, row by row as it was committed. Owner: the session; removed by deleting it.
CREATE TABLE lash_usage (
    session_key         INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    revision            INTEGER NOT NULL,
    ordinal             INTEGER NOT NULL,
    source              TEXT NOT NULL,
    model               TEXT NOT NULL,
    input_tokens        INTEGER NOT NULL CHECK (input_tokens >= 0),
    output_tokens       INTEGER NOT NULL CHECK (output_tokens >= 0),
    cached_input_tokens INTEGER NOT NULL CHECK (cached_input_tokens >= 0),
    reasoning_tokens    INTEGER NOT NULL CHECK (reasoning_tokens >= 0),
    PRIMARY KEY (session_key, revision, ordinal)
) STRICT, WITHOUT ROWID;

-- The sums of the ledger. Owner: the session; removed by deleting it.
CREATE TABLE lash_usage_totals (
    session_key         INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    source              TEXT NOT NULL,
    model               TEXT NOT NULL,
    first_revision      INTEGER NOT NULL,
    first_ordinal       INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL CHECK (input_tokens >= 0),
    output_tokens       INTEGER NOT NULL CHECK (output_tokens >= 0),
    cached_input_tokens INTEGER NOT NULL CHECK (cached_input_tokens >= 0),
    reasoning_tokens    INTEGER NOT NULL CHECK (reasoning_tokens >= 0),
    PRIMARY KEY (session_key, source, model)
) STRICT, WITHOUT ROWID;

-- The commit of each turn, so that a repeated one is recognised.
-- Owner: the session; removed by deleting it, or by maintenance once old enough.
CREATE TABLE lash_turns (
    session_key     INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    turn_id         TEXT NOT NULL,
    commit_hash     TEXT NOT NULL,
    result          TEXT NOT NULL,
    committed_at_ms INTEGER NOT NULL,
    PRIMARY KEY (session_key, turn_id)
) STRICT;
