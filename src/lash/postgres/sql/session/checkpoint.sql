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

-- name: checkpoint_blob
-- The bytes of one hash.
SELECT '', b.hash, b.codec, b.size, b.content
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_blobs AS b ON b.session_key = s.session_key
WHERE s.session_id = $1::text AND b.hash = $2::text;
