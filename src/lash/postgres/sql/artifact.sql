-- name: artifact_put
-- Keeps an artifact unless it is there.
INSERT INTO :"schema".lash_artifacts (namespace, ref, codec, size, created_at_ms, content)
VALUES ($1::text, $2::text, $3::text, $4::bigint, :"schema".lash_now_ms(), $5::bytea)
ON CONFLICT (namespace, ref) DO NOTHING;

-- name: artifact_get
-- One artifact with its bytes.
SELECT ref, codec, size, content FROM :"schema".lash_artifacts WHERE namespace = $1::text AND ref = $2::text;

-- name: artifact_exists
-- Says whether an artifact is there.
SELECT EXISTS (SELECT 1 FROM :"schema".lash_artifacts WHERE namespace = $1::text AND ref = $2::text);

-- name: artifact_page
-- The artifacts of a namespace after a place in the list, without their bytes.
SELECT ref, size, created_at_ms
FROM :"schema".lash_artifacts
WHERE namespace = $1::text AND ref > $2::text
ORDER BY ref
LIMIT $3::bigint;

-- name: artifact_delete
-- Removes one artifact.
DELETE FROM :"schema".lash_artifacts WHERE namespace = $1::text AND ref = $2::text RETURNING true;
