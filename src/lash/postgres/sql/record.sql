-- fragment: columns
-- A record without its scope and collection.
key, version, form, hash, codec, size, content, index_1, index_2, index_3, index_4, expires_at_ms, created_at_ms,
updated_at_ms

-- fragment: scope
-- The key of the scope, in no row for a session that does not exist, and the time.
scope AS MATERIALIZED (
    SELECT 0::bigint AS key, :"schema".lash_now_ms() AS now_ms WHERE $1::text IS NULL
    UNION ALL
    SELECT s.session_key, :"schema".lash_now_ms() FROM :"schema".lash_sessions AS s WHERE s.session_id = $1::text
)

-- fragment: rest
-- The range of keys, the other index fields of a page, and the expiry.
    AND key >= $3::text AND key < $4::text
    AND ($7::text IS NULL OR $7::text IN (index_1, index_2, index_3, index_4))
    AND ($8::text IS NULL OR $8::text IN (index_1, index_2, index_3, index_4))
    AND ($9::text IS NULL OR $9::text IN (index_1, index_2, index_3, index_4))
    AND (expires_at_ms IS NULL OR expires_at_ms > (SELECT scope.now_ms FROM scope))

-- name: record_get
-- The records of session $1 (NULL: of the storage) in collection $2 with the keys $3 that have not expired; one empty
-- row if there are none, and no row if the session does not exist.
WITH
-- include: scope
SELECT CASE WHEN r.key IS NOT NULL THEN row(
    r.key, r.version, r.form, r.hash, r.codec, r.size, r.content, r.index_1, r.index_2, r.index_3, r.index_4,
    r.expires_at_ms, r.created_at_ms, r.updated_at_ms
) END
FROM scope
LEFT JOIN :"schema".lash_records AS r ON r.scope_key = scope.key AND r.collection = $2::text
    AND r.key = ANY ($3::text[]) AND (r.expires_at_ms IS NULL OR r.expires_at_ms > scope.now_ms);

-- name: record_page
-- Records of session $1 (NULL: of the storage) in collection $2 with keys from $3 up to $4, ordered by key; at most $5.
WITH
-- include: scope
SELECT
-- include: columns
FROM :"schema".lash_records
WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND key >= $3::text AND key < $4::text
    AND (expires_at_ms IS NULL OR expires_at_ms > (SELECT scope.now_ms FROM scope))
ORDER BY key
LIMIT $5::bigint;

-- name: record_page_back
-- Records of session $1 (NULL: of the storage) in collection $2 with keys from $3 up to $4, the last ones first; at most $5.
WITH
-- include: scope
SELECT
-- include: columns
FROM :"schema".lash_records
WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND key >= $3::text AND key < $4::text
    AND (expires_at_ms IS NULL OR expires_at_ms > (SELECT scope.now_ms FROM scope))
ORDER BY key DESC
LIMIT $5::bigint;

-- name: record_page_by_index
-- Records as in record_page with the index field $6, and with those of $7 to $9 that are not NULL, ordered by key. A
-- field can be in any of the four columns: one step of an index for each, and at most a page from it.
WITH
-- include: scope
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_1 = $6::text
-- include: rest
    ORDER BY key
    LIMIT $5::bigint
)
UNION ALL
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_2 = $6::text
-- include: rest
    ORDER BY key
    LIMIT $5::bigint
)
UNION ALL
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_3 = $6::text
-- include: rest
    ORDER BY key
    LIMIT $5::bigint
)
UNION ALL
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_4 = $6::text
-- include: rest
    ORDER BY key
    LIMIT $5::bigint
)
ORDER BY key
LIMIT $5::bigint;

-- name: record_page_by_index_back
-- Records as in record_page with the index field $6, and with those of $7 to $9 that are not NULL, the last ones first. A
-- field can be in any of the four columns: one step of an index for each, and at most a page from it.
WITH
-- include: scope
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_1 = $6::text
-- include: rest
    ORDER BY key DESC
    LIMIT $5::bigint
)
UNION ALL
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_2 = $6::text
-- include: rest
    ORDER BY key DESC
    LIMIT $5::bigint
)
UNION ALL
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_3 = $6::text
-- include: rest
    ORDER BY key DESC
    LIMIT $5::bigint
)
UNION ALL
(
    SELECT
-- include: columns
    FROM :"schema".lash_records
    WHERE scope_key = (SELECT scope.key FROM scope) AND collection = $2::text AND index_4 = $6::text
-- include: rest
    ORDER BY key DESC
    LIMIT $5::bigint
)
ORDER BY key DESC
LIMIT $5::bigint;

-- name: record_apply
-- Puts and deletes records, all or none. Locks the sessions that own them first, so that none is deleted meanwhile, then
-- the records in the order of their keys, and compares the versions under these locks. Returns for each change whether
-- its session exists, its version before (0: none), and whether the changes were made. A record that another statement
-- has inserted meanwhile violates the primary key; then nothing is written, and the statement can be sent again.
--
-- The limit keeps the estimate of the planner low, so that it looks rows up by index.
--
-- Columns of the changes, NULL from form on for a deletion, and the most changes:
-- arguments: session_ids, collections, keys, expected_versions, forms, hashes, codecs, sizes, contents
-- arguments: index_1, index_2, index_3, index_4, ttls_ms, expiries_ms, max_changes
WITH clock AS MATERIALIZED (SELECT :"schema".lash_now_ms() AS now_ms),
owners AS MATERIALIZED (
    SELECT s.session_id, s.session_key FROM :"schema".lash_sessions AS s
    WHERE s.session_id = ANY (:session_ids::text[])
    ORDER BY s.session_key
    FOR KEY SHARE
),
asked AS MATERIALIZED (
    SELECT a.*, o.session_key, CASE WHEN a.session_id IS NULL THEN 0 ELSE o.session_key END AS scope_key
    FROM unnest(
        :session_ids::text[], :collections::text[], :keys::text[], :expected_versions::bigint[], :forms::text[],
        :hashes::text[], :codecs::text[], :sizes::bigint[], :contents::bytea[], :index_1::text[], :index_2::text[],
        :index_3::text[], :index_4::text[], :ttls_ms::bigint[], :expiries_ms::bigint[]
    ) WITH ORDINALITY AS a (
        session_id, collection, key, expected, form, hash, codec, size, content, index_1, index_2, index_3, index_4,
        ttl_ms, expires_at_ms, place
    )
    LEFT JOIN owners AS o ON o.session_id = a.session_id
    LIMIT :max_changes::bigint
),
held AS MATERIALIZED (
    SELECT a.place, r.*
    FROM (SELECT * FROM asked ORDER BY asked.scope_key, asked.collection, asked.key) AS a
    CROSS JOIN LATERAL (
        SELECT r.version, r.expires_at_ms, r.created_at_ms FROM :"schema".lash_records AS r
        WHERE r.scope_key = a.scope_key AND r.collection = a.collection AND r.key = a.key
        FOR UPDATE
    ) AS r
),
judged AS MATERIALIZED (
    SELECT
        a.*, h.place IS NOT NULL AS is_stored, v.actual, clock.now_ms,
        a.expected IS NULL OR a.expected = v.actual AS holds,
        CASE WHEN v.actual = 0 THEN clock.now_ms ELSE h.created_at_ms END AS created_at_ms,
        CASE
            WHEN a.ttl_ms IS NULL THEN a.expires_at_ms
            ELSE least(clock.now_ms, 9223372036854775807 - a.ttl_ms) + a.ttl_ms
        END AS expiry_ms
    FROM asked AS a
    CROSS JOIN clock
    LEFT JOIN held AS h ON h.place = a.place
    CROSS JOIN LATERAL (
        SELECT CASE WHEN h.place IS NULL OR h.expires_at_ms <= clock.now_ms THEN 0 ELSE h.version END AS actual
    ) AS v
),
verdict AS MATERIALIZED (SELECT bool_and(j.holds AND j.scope_key IS NOT NULL) AS holds FROM judged AS j),
deleted AS (
    DELETE FROM :"schema".lash_records AS r
    USING judged AS j, verdict
    WHERE verdict.holds AND j.form IS NULL AND r.scope_key = j.scope_key AND r.collection = j.collection
        AND r.key = j.key
),
updated AS (
    UPDATE :"schema".lash_records AS r
    SET version = j.actual + 1, form = j.form, hash = j.hash, codec = j.codec, size = j.size, index_1 = j.index_1,
        index_2 = j.index_2, index_3 = j.index_3, index_4 = j.index_4, expires_at_ms = j.expiry_ms,
        created_at_ms = j.created_at_ms, updated_at_ms = j.now_ms, content = j.content
    FROM judged AS j, verdict
    WHERE verdict.holds AND j.form IS NOT NULL AND j.is_stored AND r.scope_key = j.scope_key
        AND r.collection = j.collection AND r.key = j.key
),
inserted AS (
    INSERT INTO :"schema".lash_records (
        scope_key, collection, key, session_key, version, form, hash, codec, size, index_1, index_2, index_3, index_4,
        expires_at_ms, created_at_ms, updated_at_ms, content
    )
    SELECT
        j.scope_key, j.collection, j.key, j.session_key, 1, j.form, j.hash, j.codec, j.size, j.index_1, j.index_2,
        j.index_3, j.index_4, j.expiry_ms, j.now_ms, j.now_ms, j.content
    FROM judged AS j, verdict
    WHERE verdict.holds AND j.form IS NOT NULL AND NOT j.is_stored
    ORDER BY j.scope_key, j.collection, j.key
)
SELECT j.scope_key IS NOT NULL, j.actual, verdict.holds
FROM judged AS j, verdict
ORDER BY j.place;

-- name: record_collections
-- The collections of session $1 (NULL: of the storage): one index step for each, independent of its size.
WITH RECURSIVE scope AS (
    SELECT 0::bigint AS key WHERE $1::text IS NULL
    UNION ALL
    SELECT s.session_key FROM :"schema".lash_sessions AS s WHERE s.session_id = $1::text
),
named (collection) AS (
    SELECT (
        SELECT min(r.collection) FROM :"schema".lash_records AS r WHERE r.scope_key = (SELECT scope.key FROM scope)
    )
    UNION ALL
    SELECT (
        SELECT min(r.collection) FROM :"schema".lash_records AS r
        WHERE r.scope_key = (SELECT scope.key FROM scope) AND r.collection > named.collection
    )
    FROM named
    WHERE named.collection IS NOT NULL
)
SELECT collection FROM named WHERE collection IS NOT NULL;

-- name: record_prune
-- Removes records that expired before $1 (NULL: by now), the earliest first, at most $2; returns how many.
WITH chosen AS (
    SELECT r.scope_key, r.collection, r.key
    FROM :"schema".lash_records AS r
    WHERE r.expires_at_ms < coalesce($1::bigint, (SELECT :"schema".lash_now_ms() + 1))
    ORDER BY r.expires_at_ms
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM :"schema".lash_records AS r
    USING chosen AS c
    WHERE r.scope_key = c.scope_key AND r.collection = c.collection AND r.key = c.key
    RETURNING 1
)
SELECT count(*) FROM gone;
