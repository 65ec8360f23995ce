-- name: checkpoint_at
-- The checkpoint of one revision, without its components.
SELECT revision, checkpoint_ref, turn_state, plugin_snapshot_revision
FROM lash_checkpoints
WHERE session_key = :session_key AND revision = :revision;

-- name: checkpoint_current
-- The components of the head's checkpoint, with their bytes, without the execution states of frames.
SELECT c.key, c.hash, b.codec, b.size, b.content
FROM lash_components AS c INDEXED BY lash_components_last
LEFT JOIN lash_blobs AS b ON b.session_key = c.session_key AND b.hash = c.hash
WHERE c.session_key = :session_key AND c.last_revision IS NULL AND c.key NOT LIKE 'frame:%'
ORDER BY c.key;

-- name: checkpoint_components
-- The components of the checkpoint of one revision, with their bytes, without the execution states of frames.
SELECT c.key, c.hash, b.codec, b.size, b.content
FROM lash_components AS c
LEFT JOIN lash_blobs AS b ON b.session_key = c.session_key AND b.hash = c.hash
WHERE c.session_key = :session_key AND c.key NOT LIKE 'frame:%'
    AND c.first_revision <= :revision AND (c.last_revision IS NULL OR c.last_revision >= :revision)
ORDER BY c.key;

-- name: checkpoint_refs
-- The components of the checkpoint of one revision by their hashes, without the execution states of frames.
SELECT key, hash
FROM lash_components
WHERE session_key = :session_key AND key NOT LIKE 'frame:%'
    AND first_revision <= :revision AND (last_revision IS NULL OR last_revision >= :revision);

-- name: checkpoint_blob
-- The bytes of one hash.
SELECT '', b.hash, b.codec, b.size, b.content
FROM lash_sessions AS s
JOIN lash_blobs AS b ON b.session_key = s.session_key
WHERE s.session_id = :session_id AND b.hash = :hash;
