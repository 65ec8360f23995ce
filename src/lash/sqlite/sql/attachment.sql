-- name: attachment_guard
-- The byte guard of one digest.
SELECT attachment_id, byte_len, phase, version, token, sweeper, changed_at_ms
FROM lash_attachment_fences
WHERE attachment_id = :attachment_id;

-- name: attachment_keep
-- Creates the byte guard of one digest, or keeps it, or revokes its condemnation. An existing guard keeps its token.
INSERT INTO lash_attachment_fences (attachment_id, byte_len, phase, version, token, changed_at_ms)
VALUES (:attachment_id, :byte_len, 'kept', :version, :token, :now_ms)
ON CONFLICT (attachment_id) DO UPDATE
SET phase = 'kept', version = excluded.version, changed_at_ms = excluded.changed_at_ms
RETURNING token;

-- name: attachment_announce
-- Writes the manifest line of a session. A committed line keeps its stamp, its owner and its time; a put without an
-- owner keeps the owner.
INSERT INTO lash_attachments AS a (
    session_key, attachment_id, media_type, byte_len, width, height, label, owner_kind, owner_id, intent_at_ms
)
VALUES (
    :session_key, :attachment_id, :media_type, :byte_len, :width, :height, :label, :owner_kind, :owner_id, :now_ms
)
ON CONFLICT (session_key, attachment_id) DO UPDATE
SET media_type = excluded.media_type, width = excluded.width, height = excluded.height, label = excluded.label,
    owner_kind = iif(
        a.committed_at_ms IS NULL AND excluded.owner_kind IS NOT NULL, excluded.owner_kind, a.owner_kind
    ),
    owner_id = iif(a.committed_at_ms IS NULL AND excluded.owner_kind IS NOT NULL, excluded.owner_id, a.owner_id),
    intent_at_ms = iif(a.committed_at_ms IS NULL, excluded.intent_at_ms, a.intent_at_ms);

-- name: attachment_confirm
-- Whether a session still names a digest whose byte guard still has the token.
SELECT EXISTS (
    SELECT 1
    FROM lash_sessions AS s
    JOIN lash_attachments AS a ON a.session_key = s.session_key
    JOIN lash_attachment_fences AS f ON f.attachment_id = a.attachment_id
    WHERE s.session_id = :session_id AND a.attachment_id = :attachment_id AND f.token = :token
);

-- name: attachment_row
-- One line of the manifest.
SELECT
    a.session_key, s.session_id, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.owner_kind,
    a.owner_id, a.intent_at_ms, a.committed_at_ms
FROM lash_sessions AS s
JOIN lash_attachments AS a ON a.session_key = s.session_key
WHERE s.session_id = :session_id AND a.attachment_id = :attachment_id;

-- name: attachment_lines
-- The lines of one session, after an id.
SELECT
    a.session_key, s.session_id, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.owner_kind,
    a.owner_id, a.intent_at_ms, a.committed_at_ms
FROM lash_sessions AS s
JOIN lash_attachments AS a ON a.session_key = s.session_key
WHERE s.session_key = :session_key AND a.attachment_id > :after
ORDER BY a.attachment_id
LIMIT :limit;

-- name: attachment_stamp
-- Stamps the attachments (a JSON array of ids) of a session that have no stamp yet, and returns their ids.
UPDATE lash_attachments
SET committed_at_ms = coalesce(committed_at_ms, :now_ms)
WHERE session_key = :session_key AND attachment_id IN (SELECT value FROM json_each(:attachment_ids))
RETURNING attachment_id;

-- name: attachment_uncommitted
-- The lines without a stamp that are old enough, after a position of the list.
SELECT
    a.session_key, s.session_id, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.owner_kind,
    a.owner_id, a.intent_at_ms, a.committed_at_ms
FROM lash_attachments AS a INDEXED BY lash_attachments_uncommitted
CROSS JOIN lash_sessions AS s ON s.session_key = a.session_key
WHERE a.committed_at_ms IS NULL AND a.intent_at_ms <= :newest_ms
    AND (a.intent_at_ms, a.attachment_id, a.session_key) > (:intent_at_ms, :attachment_id, :session_key)
ORDER BY a.intent_at_ms, a.attachment_id, a.session_key
LIMIT :limit;

-- name: attachment_forget
-- Removes a session's line.
DELETE FROM lash_attachments
WHERE session_key = :session_key AND attachment_id = :attachment_id;

-- name: attachment_drop
-- Removes a session's line if it has no stamp and was not announced again.
DELETE FROM lash_attachments
WHERE session_key = :session_key AND attachment_id = :attachment_id AND committed_at_ms IS NULL
    AND intent_at_ms = :intent_at_ms;

-- name: attachment_names
-- How many sessions name each of the ids (a JSON array).
SELECT attachment_id, count(*)
FROM lash_attachments
WHERE attachment_id IN (SELECT value FROM json_each(:attachment_ids))
GROUP BY attachment_id;

-- name: attachment_guard_ids
-- The next digests that have a byte guard, after an id.
SELECT attachment_id FROM lash_attachment_fences WHERE attachment_id > :after ORDER BY attachment_id LIMIT :limit;

-- name: attachment_unnamed
-- The byte guards of digests that no session names, after an id and up to another.
SELECT f.attachment_id, f.byte_len, f.phase, f.version, f.token, f.sweeper, f.changed_at_ms
FROM lash_attachment_fences AS f
WHERE f.attachment_id > :after AND f.attachment_id <= :last_id
    AND NOT EXISTS (SELECT 1 FROM lash_attachments AS a WHERE a.attachment_id = f.attachment_id)
ORDER BY f.attachment_id;

-- name: attachment_move
-- Changes a byte guard that still has the version seen, and whose digest no session names.
UPDATE lash_attachment_fences
SET phase = :phase, version = version + 1, sweeper = :sweeper, changed_at_ms = :now_ms
WHERE attachment_id = :attachment_id AND version = :version
    AND NOT EXISTS (SELECT 1 FROM lash_attachments AS a WHERE a.attachment_id = lash_attachment_fences.attachment_id);

-- name: attachment_remove
-- Deletes the byte guard whose bytes are gone.
DELETE FROM lash_attachment_fences
WHERE attachment_id = :attachment_id AND version = :version AND phase = 'deleting';

-- name: attachment_bytes_put
-- Stores bytes; equal bytes are not written again, damaged ones are replaced.
INSERT INTO lash_attachment_bytes AS b (attachment_id, codec, size, content)
VALUES (:attachment_id, :codec, :size, :content)
ON CONFLICT (attachment_id) DO UPDATE
SET codec = excluded.codec, size = excluded.size, content = excluded.content
WHERE b.codec <> excluded.codec OR b.size <> excluded.size OR b.content <> excluded.content;

-- name: attachment_bytes_get
-- The bytes of one digest.
SELECT attachment_id, codec, size, content FROM lash_attachment_bytes WHERE attachment_id = :attachment_id;

-- name: attachment_bytes_delete
-- Removes the bytes of one digest.
DELETE FROM lash_attachment_bytes WHERE attachment_id = :attachment_id;
