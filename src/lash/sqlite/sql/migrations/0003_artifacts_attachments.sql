-- Artifacts, and the attachments of sessions.

-- Code and environments by namespace and the hash of their plain form; the first bytes stay. put_at_ms is the last put.
-- Owner: the process or trigger that names the ref; a garbage collection deletes artifacts that are not named.
CREATE TABLE lash_artifacts (
    namespace     TEXT NOT NULL,
    ref           TEXT NOT NULL,
    codec         TEXT NOT NULL,
    size          INTEGER NOT NULL CHECK (size >= 0),
    created_at_ms INTEGER NOT NULL,
    put_at_ms     INTEGER NOT NULL,
    content       BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX lash_artifacts_ref ON lash_artifacts (namespace, ref);

-- The manifest: the attachments of each session. A row is inserted before the bytes are written. The first commit that
-- uses the attachment stamps it, and the stamp never changes.
-- Owner: the session; removed by deleting or forgetting. A sweep removes rows without a stamp.
CREATE TABLE lash_attachments (
    session_key     INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    attachment_id   TEXT NOT NULL,
    media_type      TEXT NOT NULL,
    byte_len        INTEGER NOT NULL CHECK (byte_len >= 0),
    width           INTEGER CHECK (width > 0),
    height          INTEGER CHECK (height > 0),
    label           TEXT,
    owner_kind      TEXT CHECK (owner_kind IN ('turn', 'process')),
    owner_id        TEXT,
    intent_at_ms    INTEGER NOT NULL,
    committed_at_ms INTEGER,
    PRIMARY KEY (session_key, attachment_id),
    CHECK ((owner_kind IS NULL) = (owner_id IS NULL))
) STRICT, WITHOUT ROWID;
-- Asks whether any session names the bytes.
CREATE INDEX lash_attachments_id ON lash_attachments (attachment_id);
-- Finds what a sweep has to look at, the oldest first.
CREATE INDEX lash_attachments_uncommitted ON lash_attachments (intent_at_ms, attachment_id, session_key)
WHERE committed_at_ms IS NULL;

-- One row for all bytes that the byte store holds or may hold, written before them: the fence between callers that put
-- them and a sweep that deletes them. token names one life of the bytes, version every change within it.
-- Owner: the storage; removed by a sweep, after the bytes, once no session names them.
CREATE TABLE lash_attachment_fences (
    attachment_id TEXT NOT NULL PRIMARY KEY,
    byte_len      INTEGER NOT NULL CHECK (byte_len >= 0),
    phase         TEXT NOT NULL CHECK (phase IN ('kept', 'condemned', 'deleting')),
    version       INTEGER NOT NULL CHECK (version > 0),
    token         TEXT NOT NULL,
    sweeper       TEXT,
    changed_at_ms INTEGER NOT NULL,
    CHECK (sweeper IS NULL OR phase = 'deleting')
) STRICT;

-- The bytes of attachments where the database itself is the byte store.
-- Owner: their fence; removed by the sweep that holds it.
CREATE TABLE lash_attachment_bytes (
    attachment_id TEXT NOT NULL PRIMARY KEY,
    codec         TEXT NOT NULL,
    size          INTEGER NOT NULL CHECK (size >= 0),
    content       BLOB NOT NULL
) STRICT;
