-- Records: small values under a collection and a key.

-- One row for each record. scope_key is the session's key, or 0 in the storage's scope, so that the primary key has no
-- NULL. Each index field is a text name=value, in the first columns that it needs.
-- Owner: the session, removed with it, or the storage. An expired row is removed by pruning.
CREATE TABLE :"schema".lash_records (
    scope_key     bigint NOT NULL,
    collection    text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    session_key   bigint REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    version       bigint NOT NULL CHECK (version >= 1),
    form          text NOT NULL,
    hash          text NOT NULL,
    codec         text NOT NULL,
    size          bigint NOT NULL CHECK (size >= 0),
    index_1       text COLLATE "C",
    index_2       text COLLATE "C",
    index_3       text COLLATE "C",
    index_4       text COLLATE "C",
    expires_at_ms bigint,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    content       bytea NOT NULL,
    PRIMARY KEY (scope_key, collection, key),
    CHECK (scope_key = coalesce(session_key, 0))
) WITH (fillfactor = 70);
-- Removes the records of a session.
CREATE INDEX lash_records_session ON :"schema".lash_records (session_key) WHERE session_key IS NOT NULL;
-- Lists by an index field, ordered by key.
CREATE INDEX lash_records_index_1 ON :"schema".lash_records (scope_key, collection, index_1, key)
WHERE index_1 IS NOT NULL;
CREATE INDEX lash_records_index_2 ON :"schema".lash_records (scope_key, collection, index_2, key)
WHERE index_2 IS NOT NULL;
CREATE INDEX lash_records_index_3 ON :"schema".lash_records (scope_key, collection, index_3, key)
WHERE index_3 IS NOT NULL;
CREATE INDEX lash_records_index_4 ON :"schema".lash_records (scope_key, collection, index_4, key)
WHERE index_4 IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_records_expiry ON :"schema".lash_records (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
