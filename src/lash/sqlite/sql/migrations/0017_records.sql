-- Records: small values under a collection and a key.

-- One row for each record. scope_key is the session's key, or 0 in the storage's scope, so that the primary key has no
-- NULL. Each index field is a text name=value, in the first columns that it needs.
-- Owner: the session, removed with it, or the storage. An expired row is removed by pruning.
CREATE TABLE lash_records (
    scope_key     INTEGER NOT NULL,
    collection    TEXT NOT NULL,
    key           TEXT NOT NULL,
    session_key   INTEGER REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    version       INTEGER NOT NULL CHECK (version >= 1),
    form          TEXT NOT NULL,
    hash          TEXT NOT NULL,
    codec         TEXT NOT NULL,
    size          INTEGER NOT NULL CHECK (size >= 0),
    index_1       TEXT,
    index_2       TEXT,
    index_3       TEXT,
    index_4       TEXT,
    expires_at_ms INTEGER,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    content       BLOB NOT NULL,
    PRIMARY KEY (scope_key, collection, key),
    CHECK (scope_key = coalesce(session_key, 0))
) STRICT;
-- Removes the records of a session.
CREATE INDEX lash_records_session ON lash_records (session_key) WHERE session_key IS NOT NULL;
-- Lists by an index field, ordered by key.
CREATE INDEX lash_records_index_1 ON lash_records (scope_key, collection, index_1, key) WHERE index_1 IS NOT NULL;
CREATE INDEX lash_records_index_2 ON lash_records (scope_key, collection, index_2, key) WHERE index_2 IS NOT NULL;
CREATE INDEX lash_records_index_3 ON lash_records (scope_key, collection, index_3, key) WHERE index_3 IS NOT NULL;
CREATE INDEX lash_records_index_4 ON lash_records (scope_key, collection, index_4, key) WHERE index_4 IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_records_expiry ON lash_records (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
