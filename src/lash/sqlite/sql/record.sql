-- fragment: columns
-- A record without its scope and collection.
key, version, form, hash, codec, size, content, index_1, index_2, index_3, index_4, expires_at_ms, created_at_ms,
updated_at_ms

-- fragment: rest
-- The range of keys, the other index fields of a page, and the expiry.
    AND key >= :first AND key < :end
    AND (:second IS NULL OR :second IN (index_1, index_2, index_3, index_4))
    AND (:third IS NULL OR :third IN (index_1, index_2, index_3, index_4))
    AND (:fourth IS NULL OR :fourth IN (index_1, index_2, index_3, index_4))
    AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)

-- name: record_get
-- The records of some keys (a JSON array) that have not expired.
SELECT
-- include: columns
FROM lash_records
WHERE scope_key = :scope_key AND collection = :collection AND key IN (SELECT value FROM json_each(:keys))
    AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms);

-- name: record_page
-- Records of a range of keys, ordered by key.
SELECT
-- include: columns
FROM lash_records
WHERE scope_key = :scope_key AND collection = :collection AND key >= :first AND key < :end
    AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
ORDER BY key
LIMIT :limit;

-- name: record_page_back
-- Records of a range of keys, the last ones first.
SELECT
-- include: columns
FROM lash_records
WHERE scope_key = :scope_key AND collection = :collection AND key >= :first AND key < :end
    AND (expires_at_ms IS NULL OR expires_at_ms > :now_ms)
ORDER BY key DESC
LIMIT :limit;

-- name: record_page_by_index
-- Records of a range of keys with an index field, and with up to three others, ordered by key. A field can be in any
-- of the four columns: one step of an index for each, and at most a page from it.
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_1
    WHERE scope_key = :scope_key AND collection = :collection AND index_1 = :field
-- include: rest
    ORDER BY key
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_2
    WHERE scope_key = :scope_key AND collection = :collection AND index_2 = :field
-- include: rest
    ORDER BY key
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_3
    WHERE scope_key = :scope_key AND collection = :collection AND index_3 = :field
-- include: rest
    ORDER BY key
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_4
    WHERE scope_key = :scope_key AND collection = :collection AND index_4 = :field
-- include: rest
    ORDER BY key
    LIMIT :limit
)
ORDER BY key
LIMIT :limit;

-- name: record_page_by_index_back
-- Records of a range of keys with an index field, and with up to three others, the last ones first. A field can be in any
-- of the four columns: one step of an index for each, and at most a page from it.
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_1
    WHERE scope_key = :scope_key AND collection = :collection AND index_1 = :field
-- include: rest
    ORDER BY key DESC
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_2
    WHERE scope_key = :scope_key AND collection = :collection AND index_2 = :field
-- include: rest
    ORDER BY key DESC
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_3
    WHERE scope_key = :scope_key AND collection = :collection AND index_3 = :field
-- include: rest
    ORDER BY key DESC
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT
-- include: columns
    FROM lash_records INDEXED BY lash_records_index_4
    WHERE scope_key = :scope_key AND collection = :collection AND index_4 = :field
-- include: rest
    ORDER BY key DESC
    LIMIT :limit
)
ORDER BY key DESC
LIMIT :limit;

-- name: record_state
-- What a change must know of the stored record.
SELECT version, expires_at_ms, created_at_ms
FROM lash_records
WHERE scope_key = :scope_key AND collection = :collection AND key = :key;

-- name: record_put
-- Writes a record whole.
INSERT INTO lash_records (
    scope_key, collection, key, session_key, version, form, hash, codec, size, index_1, index_2, index_3, index_4,
    expires_at_ms, created_at_ms, updated_at_ms, content
)
VALUES (
    :scope_key, :collection, :key, :session_key, :version, :form, :hash, :codec, :size, :index_1, :index_2, :index_3,
    :index_4, :expires_at_ms, :created_at_ms, :now_ms, :content
)
ON CONFLICT (scope_key, collection, key) DO UPDATE
SET version = excluded.version, form = excluded.form, hash = excluded.hash, codec = excluded.codec,
    size = excluded.size, index_1 = excluded.index_1, index_2 = excluded.index_2, index_3 = excluded.index_3,
    index_4 = excluded.index_4, expires_at_ms = excluded.expires_at_ms, created_at_ms = excluded.created_at_ms,
    updated_at_ms = excluded.updated_at_ms, content = excluded.content;

-- name: record_delete
-- Removes a record.
DELETE FROM lash_records WHERE scope_key = :scope_key AND collection = :collection AND key = :key;

-- name: record_collections
-- The collections of a scope: one index step for each, independent of its size.
WITH RECURSIVE named (collection) AS (
    SELECT min(collection) FROM lash_records WHERE scope_key = :scope_key
    UNION ALL
    SELECT (
        SELECT min(r.collection) FROM lash_records AS r
        WHERE r.scope_key = :scope_key AND r.collection > named.collection
    )
    FROM named
    WHERE named.collection IS NOT NULL
)
SELECT collection FROM named WHERE collection IS NOT NULL;

-- name: record_prune
-- Removes records that expired before a moment, the earliest first.
DELETE FROM lash_records
WHERE rowid IN (
    SELECT rowid FROM lash_records
    WHERE expires_at_ms < :before_ms
    ORDER BY expires_at_ms
    LIMIT :limit
);
