-- name: artifact_put
-- Keeps an artifact unless it is there.
INSERT INTO lash_artifacts (namespace, ref, codec, size, created_at_ms, content)
VALUES (:namespace, :ref, :codec, :size, :now_ms, :content)
ON CONFLICT (namespace, ref) DO NOTHING;

-- name: artifact_get
-- One artifact with its bytes.
SELECT ref, codec, size, content FROM lash_artifacts WHERE namespace = :namespace AND ref = :ref;

-- name: artifact_exists
-- Says whether an artifact is there.
SELECT EXISTS (SELECT 1 FROM lash_artifacts WHERE namespace = :namespace AND ref = :ref);

-- name: artifact_page
-- The artifacts of a namespace after a place in the list, without their bytes.
SELECT ref, size, created_at_ms
FROM lash_artifacts
WHERE namespace = :namespace AND ref > :after
ORDER BY ref
LIMIT :limit;

-- name: artifact_delete
-- Removes one artifact.
DELETE FROM lash_artifacts WHERE namespace = :namespace AND ref = :ref;
