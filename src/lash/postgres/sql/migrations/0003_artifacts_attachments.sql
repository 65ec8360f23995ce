-- Artifacts, and the attachments of sessions.

-- Code and environments by namespace and the hash of their plain form; the first bytes stay. put_at_ms is the last put.
-- Owner: the process or trigger that names the ref; a garbage collection deletes artifacts that are not named.
CREATE TABLE :"schema".lash_artifacts (
    namespace     text NOT NULL,
    ref           text COLLATE "C" NOT NULL,
    codec         text NOT NULL,
    size          bigint NOT NULL CHECK (size >= 0),
    created_at_ms bigint NOT NULL,
    put_at_ms     bigint NOT NULL,
    content       bytea NOT NULL
);
-- The bytes are compressed before they come here; PostgreSQL need not try again.
ALTER TABLE :"schema".lash_artifacts ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX lash_artifacts_ref ON :"schema".lash_artifacts (namespace, ref);

-- The manifest: the attachments of each session. A row is inserted before the bytes are written. The first commit that
-- uses the attachment stamps it, and the stamp never changes.
-- Owner: the session; removed by deleting or forgetting. A sweep removes rows without a stamp.
CREATE TABLE :"schema".lash_attachments (
    session_key     bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    attachment_id   text COLLATE "C" NOT NULL,
    media_type      text NOT NULL,
    byte_len        bigint NOT NULL CHECK (byte_len >= 0),
    width           bigint CHECK (width > 0),
    height          bigint CHECK (height > 0),
    label           text,
    owner_kind      text CHECK (owner_kind IN ('turn', 'process')),
    owner_id        text,
    intent_at_ms    bigint NOT NULL,
    committed_at_ms bigint,
    PRIMARY KEY (session_key, attachment_id),
    CHECK ((owner_kind IS NULL) = (owner_id IS NULL))
);
-- Asks whether any session names the bytes.
CREATE INDEX lash_attachments_id ON :"schema".lash_attachments (attachment_id);
-- Finds what a sweep has to look at, the oldest first.
CREATE INDEX lash_attachments_uncommitted
ON :"schema".lash_attachments (intent_at_ms, attachment_id, session_key)
WHERE committed_at_ms IS NULL;

-- One row for all bytes that the byte store holds or may hold, written before them: the fence between callers that put
-- them and a sweep that deletes them. token names one life of the bytes, version every change within it.
-- Owner: the storage; removed by a sweep, after the bytes, once no session names them.
CREATE TABLE :"schema".lash_attachment_fences (
    attachment_id text COLLATE "C" PRIMARY KEY,
    byte_len      bigint NOT NULL CHECK (byte_len >= 0),
    phase         text NOT NULL CHECK (phase IN ('kept', 'condemned', 'deleting')),
    version       bigint NOT NULL CHECK (version > 0),
    token         text NOT NULL,
    sweeper       text,
    changed_at_ms bigint NOT NULL,
    CHECK (sweeper IS NULL OR phase = 'deleting')
) WITH (fillfactor = 70);

-- The bytes of attachments where the database itself is the byte store.
-- Owner: their fence; removed by the sweep that holds it.
CREATE TABLE :"schema".lash_attachment_bytes (
    attachment_id text PRIMARY KEY,
    codec         text NOT NULL,
    size          bigint NOT NULL CHECK (size >= 0),
    content       bytea NOT NULL
);
-- The bytes are compressed before they come here; PostgreSQL need not try again.
ALTER TABLE :"schema".lash_attachment_bytes ALTER COLUMN content SET STORAGE EXTERNAL;
