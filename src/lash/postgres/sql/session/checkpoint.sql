-- name: checkpoint_load
-- The checkpoint of one revision (the head's if $2 is null) with the bytes of its components.
SELECT
    s.session_key,
    (
        SELECT row(p.revision, p.checkpoint_ref, p.turn_state, p.plugin_snapshot_revision)
        FROM :"schema".lash_checkpoints AS p
        WHERE p.session_key = s.session_key AND p.revision = coalesce($2::bigint, s.revision)
    ),
    array(
        SELECT row(c.key, c.hash, b.codec, b.size, b.content)
        FROM :"schema".lash_components AS c
        LEFT JOIN :"schema".lash_blobs AS b ON b.session_key = c.session_key AND b.hash = c.hash
        WHERE c.session_key = s.session_key AND c.key NOT LIKE 'frame:%'
            AND c.first_revision <= coalesce($2::bigint, s.revision)
            AND (c.last_revision IS NULL OR c.last_revision >= coalesce($2::bigint, s.revision))
        ORDER BY c.key
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: checkpoint_refs
-- The checkpoint of one revision (the head's if $2 is null) with the hashes of its components.
SELECT
    s.session_key,
    (
        SELECT row(p.revision, p.checkpoint_ref, p.turn_state, p.plugin_snapshot_revision)
        FROM :"schema".lash_checkpoints AS p
        WHERE p.session_key = s.session_key AND p.revision = coalesce($2::bigint, s.revision)
    ),
    array(
        SELECT row(c.key, c.hash)
        FROM :"schema".lash_components AS c
        WHERE c.session_key = s.session_key AND c.key NOT LIKE 'frame:%'
            AND c.first_revision <= coalesce($2::bigint, s.revision)
            AND (c.last_revision IS NULL OR c.last_revision >= coalesce($2::bigint, s.revision))
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: checkpoint_blob
-- The bytes of one hash.
SELECT '', b.hash, b.codec, b.size, b.content
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_blobs AS b ON b.session_key = s.session_key
WHERE s.session_id = $1::text AND b.hash = $2::text;

-- name: checkpoint_drop_below
-- Deletes the checkpoints of a session below a revision ($2), and the components and bytes that only these used.
WITH checkpoints AS (
    DELETE FROM :"schema".lash_checkpoints WHERE session_key = $1::bigint AND revision < $2::bigint
),
components AS (
    DELETE FROM :"schema".lash_components
    WHERE session_key = $1::bigint AND last_revision < $2::bigint
    RETURNING key, first_revision, hash
)
DELETE FROM :"schema".lash_blobs AS b
USING components AS gone
WHERE b.session_key = $1::bigint AND b.hash = gone.hash
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_components AS c
        WHERE c.session_key = $1::bigint AND c.hash = b.hash
            AND NOT EXISTS (
                SELECT 1 FROM components AS d WHERE d.key = c.key AND d.first_revision = c.first_revision
            )
    );
