-- name: artifact_put
-- Stores an artifact. If it exists, only the time of its last put changes.
INSERT INTO lash_artifacts (namespace, ref, codec, size, created_at_ms, put_at_ms, content)
VALUES (:namespace, :ref, :codec, :size, :now_ms, :now_ms, :content)
ON CONFLICT (namespace, ref) DO UPDATE SET put_at_ms = excluded.put_at_ms;

-- name: artifact_get
-- One artifact with its bytes.
SELECT ref, codec, size, content FROM lash_artifacts WHERE namespace = :namespace AND ref = :ref;

-- name: artifact_exists
-- Whether an artifact exists.
SELECT EXISTS (SELECT 1 FROM lash_artifacts WHERE namespace = :namespace AND ref = :ref);

-- name: artifact_page
-- The artifacts of a namespace after a ref, without their bytes.
SELECT ref, size, created_at_ms
FROM lash_artifacts
WHERE namespace = :namespace AND ref > :after
ORDER BY ref
LIMIT :limit;

-- name: artifact_namespaces
-- The namespaces that hold an artifact: one index step for each, independent of its size.
WITH RECURSIVE named (namespace) AS (
    SELECT min(namespace) FROM lash_artifacts
    UNION ALL
    SELECT (SELECT min(a.namespace) FROM lash_artifacts AS a WHERE a.namespace > named.namespace)
    FROM named
    WHERE named.namespace IS NOT NULL
)
SELECT namespace FROM named WHERE namespace IS NOT NULL;

-- name: artifact_delete
-- Removes one artifact.
DELETE FROM lash_artifacts WHERE namespace = :namespace AND ref = :ref;
