-- name: artifact_put
-- Stores an artifact. If it exists, only the time of its last put changes.
INSERT INTO :"schema".lash_artifacts (namespace, ref, codec, size, created_at_ms, put_at_ms, content)
SELECT $1::text, $2::text, $3::text, $4::bigint, clock.now_ms, clock.now_ms, $5::bytea
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
ON CONFLICT (namespace, ref) DO UPDATE SET put_at_ms = excluded.put_at_ms;

-- name: artifact_get
-- One artifact with its bytes.
SELECT ref, codec, size, content FROM :"schema".lash_artifacts WHERE namespace = $1::text AND ref = $2::text;

-- name: artifact_exists
-- Whether an artifact exists.
SELECT EXISTS (SELECT 1 FROM :"schema".lash_artifacts WHERE namespace = $1::text AND ref = $2::text);

-- name: artifact_page
-- The artifacts of a namespace after a ref, without their bytes.
SELECT ref, size, created_at_ms
FROM :"schema".lash_artifacts
WHERE namespace = $1::text AND ref > $2::text
ORDER BY ref
LIMIT $3::bigint;

-- name: artifact_namespaces
-- The namespaces that hold an artifact: one index step for each, independent of its size.
WITH RECURSIVE named (namespace) AS (
    SELECT min(namespace) FROM :"schema".lash_artifacts
    UNION ALL
    SELECT (SELECT min(a.namespace) FROM :"schema".lash_artifacts AS a WHERE a.namespace > named.namespace)
    FROM named
    WHERE named.namespace IS NOT NULL
)
SELECT namespace FROM named WHERE namespace IS NOT NULL;

-- name: artifact_delete
-- Removes one artifact.
DELETE FROM :"schema".lash_artifacts WHERE namespace = $1::text AND ref = $2::text RETURNING true;
