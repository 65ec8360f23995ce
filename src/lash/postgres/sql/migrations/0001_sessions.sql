-- Sessions, their graphs, checkpoints, ledgers and leases.
-- Every table says who owns its rows and what removes them.

-- The time that decides: every statement asks this function, so that no client's clock matters.
CREATE FUNCTION :"schema".lash_now_ms() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';

-- Which migrations were applied. Owner: the storage; never removed.
CREATE TABLE :"schema".lash_migrations (
    number        bigint PRIMARY KEY,
    name          text NOT NULL,
    applied_at_ms bigint NOT NULL
);

-- One row for each session: its metadata and its head. The head is absent until the first commit.
-- Owner: the session; removed by deleting it. session_key is never used again, session_id may be.
CREATE TABLE :"schema".lash_sessions (
    session_key        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id         text NOT NULL UNIQUE,
    name               text NOT NULL,
    created_at_ms      bigint NOT NULL,
    model              text NOT NULL,
    cwd                text,
    relation           text NOT NULL,
    revision           bigint NOT NULL CHECK (revision >= 0),
    config             text,
    current_frame_id   text,
    checkpoint_ref     text,
    leaf_node_id       text,
    leaf_segment       bigint,
    leaf_depth         bigint,
    segment_count      bigint NOT NULL DEFAULT 0 CHECK (segment_count >= 0),
    node_seq           bigint NOT NULL DEFAULT 0 CHECK (node_seq >= 0),
    node_count         bigint NOT NULL DEFAULT 0 CHECK (node_count >= 0),
    first_user_message text NOT NULL DEFAULT '',
    user_message_count bigint NOT NULL DEFAULT 0 CHECK (user_message_count >= 0),
    updated_at_ms      bigint NOT NULL,
    CHECK ((config IS NULL) = (checkpoint_ref IS NULL)),
    CHECK ((leaf_node_id IS NULL) = (leaf_segment IS NULL) AND (leaf_segment IS NULL) = (leaf_depth IS NULL))
) WITH (fillfactor = 70);

-- Every session id that was ever used. Its numbers are those from which the session of this id started; once it is
-- deleted, the last ones it reached, above which its successor starts.
-- Owner: the storage; never removed. It is the tombstone of a deleted session.
CREATE TABLE :"schema".lash_session_ids (
    session_id    text PRIMARY KEY,
    revision      bigint NOT NULL DEFAULT 0 CHECK (revision >= 0),
    fencing       bigint NOT NULL DEFAULT 0 CHECK (fencing >= 0),
    deleted_at_ms bigint
);

-- The lease of each session. The row outlives its holder, so fencing numbers only grow.
-- Owner: the session; made and removed with it.
CREATE TABLE :"schema".lash_session_leases (
    session_key    bigint PRIMARY KEY REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    fencing        bigint NOT NULL DEFAULT 0 CHECK (fencing >= 0),
    owner_id       text,
    incarnation_id text,
    process        text,
    token          text,
    claimed_at_ms  bigint NOT NULL DEFAULT 0,
    expires_at_ms  bigint NOT NULL DEFAULT 0,
    CHECK ((token IS NULL) = (owner_id IS NULL) AND (token IS NULL) = (incarnation_id IS NULL))
) WITH (fillfactor = 70);

-- Linear runs of nodes, and where each left its parent run. Numbers are never used again within a session. Segment 0 is
-- that of a fork: it continues the path that the fork inherits (lash_inherited). A vacuum closes the segments from
-- which it takes nodes, so that no place is used again.
-- Owner: the session; removed by replacing its graph, or by deleting it. What a fork still inherits then stays, and goes
-- with the last such fork.
CREATE TABLE :"schema".lash_segments (
    session_key    bigint NOT NULL,
    segment        bigint NOT NULL CHECK (segment >= 0),
    parent_segment bigint,
    parent_depth   bigint,
    closed         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (session_key, segment),
    CHECK ((parent_segment IS NULL) = (parent_depth IS NULL))
);

-- The path that a fork inherits, as runs of depths on the segments of other sessions: those above floor, up to ceiling.
-- To the fork these nodes lie on its own segment 0. A run never changes, and its nodes cannot be removed.
-- Owner: the fork; removed by deleting it or by replacing its graph.
CREATE TABLE :"schema".lash_inherited (
    session_key bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    owner_key   bigint NOT NULL,
    segment     bigint NOT NULL,
    floor       bigint NOT NULL CHECK (floor >= -1),
    ceiling     bigint NOT NULL,
    PRIMARY KEY (session_key, owner_key, segment),
    FOREIGN KEY (owner_key, segment) REFERENCES :"schema".lash_segments (session_key, segment),
    CHECK (floor < ceiling)
);
-- Asks who inherits from a session or a segment.
CREATE INDEX lash_inherited_owner ON :"schema".lash_inherited (owner_key, segment);

-- The entries of the conversation graphs. seq is the order of insertion within a session.
-- Owner: the segment; removed with it, by deleting the session unless a fork still inherits them, or by a vacuum once
-- tombstoned.
CREATE TABLE :"schema".lash_nodes (
    session_key        bigint NOT NULL,
    segment            bigint NOT NULL,
    depth              bigint NOT NULL CHECK (depth >= 0),
    seq                bigint NOT NULL,
    node_id            text NOT NULL,
    parent_node_id     text,
    user_message       boolean NOT NULL,
    tombstoned_at_ms   bigint,
    body               text NOT NULL,
    FOREIGN KEY (session_key, segment) REFERENCES :"schema".lash_segments (session_key, segment) ON DELETE CASCADE
);
-- Reads paths as ranges, and guards against two nodes at one place.
CREATE UNIQUE INDEX lash_nodes_place ON :"schema".lash_nodes (session_key, segment, depth);
-- Finds a node by its id, and guards the id.
CREATE UNIQUE INDEX lash_nodes_id ON :"schema".lash_nodes (session_key, node_id);

-- The frames of a session's head. Owner: the session; a commit replaces the list.
CREATE TABLE :"schema".lash_frames (
    session_key bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    frame_id    text NOT NULL,
    position    bigint NOT NULL,
    body        text NOT NULL,
    PRIMARY KEY (session_key, frame_id)
);

-- The small part of the checkpoint of each revision that is kept.
-- Owner: the session; a commit removes what its retention policy no longer keeps.
CREATE TABLE :"schema".lash_checkpoints (
    session_key              bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    revision                 bigint NOT NULL,
    checkpoint_ref           text NOT NULL,
    turn_state               text NOT NULL,
    plugin_snapshot_revision bigint,
    PRIMARY KEY (session_key, revision)
);

-- Which component had which bytes, from its first revision to its last (NULL: still).
-- Owner: the session; removed like the checkpoints that they belong to.
CREATE TABLE :"schema".lash_components (
    session_key    bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    key            text NOT NULL,
    first_revision bigint NOT NULL,
    last_revision  bigint,
    hash           text NOT NULL,
    PRIMARY KEY (session_key, key, first_revision)
);
-- Finds what is current (NULL) and what falls below the retention floor, without reading the history between.
CREATE INDEX lash_components_last ON :"schema".lash_components (session_key, last_revision);
-- Asks whether bytes are still used.
CREATE INDEX lash_components_hash ON :"schema".lash_components (session_key, hash);

-- Bytes by the hash of their plain form, once for each session.
-- Owner: the components of the session; removed with the last that names them.
CREATE TABLE :"schema".lash_blobs (
    session_key bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    hash        text NOT NULL,
    codec       text NOT NULL,
    size        bigint NOT NULL CHECK (size >= 0),
    content     bytea NOT NULL
);
-- The bytes are compressed before they come here; PostgreSQL need not try again.
ALTER TABLE :"schema".lash_blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX lash_blobs_hash ON :"schema".lash_blobs (session_key, hash);

-- The ledger, row by row as it was committed. Owner: the session; removed by deleting it.
CREATE TABLE :"schema".lash_usage (
    session_key         bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    revision            bigint NOT NULL,
    ordinal             bigint NOT NULL,
    source              text NOT NULL,
    model               text NOT NULL,
    input_tokens        bigint NOT NULL CHECK (input_tokens >= 0),
    output_tokens       bigint NOT NULL CHECK (output_tokens >= 0),
    cached_input_tokens bigint NOT NULL CHECK (cached_input_tokens >= 0),
    reasoning_tokens    bigint NOT NULL CHECK (reasoning_tokens >= 0),
    PRIMARY KEY (session_key, revision, ordinal)
);

-- The sums of the ledger. Owner: the session; removed by deleting it.
CREATE TABLE :"schema".lash_usage_totals (
    session_key         bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    source              text NOT NULL,
    model               text NOT NULL,
    first_revision      bigint NOT NULL,
    first_ordinal       bigint NOT NULL,
    input_tokens        bigint NOT NULL CHECK (input_tokens >= 0),
    output_tokens       bigint NOT NULL CHECK (output_tokens >= 0),
    cached_input_tokens bigint NOT NULL CHECK (cached_input_tokens >= 0),
    reasoning_tokens    bigint NOT NULL CHECK (reasoning_tokens >= 0),
    PRIMARY KEY (session_key, source, model)
);

-- The commit of each turn, so that a repeated one is recognised.
-- Owner: the session; removed by deleting it, or by maintenance once old enough.
CREATE TABLE :"schema".lash_turns (
    session_key     bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    turn_id         text NOT NULL,
    commit_hash     text NOT NULL,
    result          text NOT NULL,
    committed_at_ms bigint NOT NULL,
    PRIMARY KEY (session_key, turn_id)
);
