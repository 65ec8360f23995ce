-- name: attachment_now
-- The time of the server.
SELECT :"schema".lash_now_ms();

-- name: attachment_announce
-- Writes the manifest line of a session, and keeps the byte guard of its digest or revokes its condemnation; writes
-- neither while the bytes are being deleted. A committed line keeps its stamp, its owner and its time; a put without an
-- owner keeps the owner. Returns the key of the session and the token of the guard.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
session AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text FOR KEY SHARE),
guard AS (
    INSERT INTO :"schema".lash_attachment_fences AS f (
        attachment_id, byte_len, phase, version, token, changed_at_ms
    )
    SELECT $2::text, $4::bigint, 'kept', 1, $10::text, clock.now_ms
    FROM clock, session
    ON CONFLICT (attachment_id) DO UPDATE
    SET phase = 'kept', version = f.version + 1, changed_at_ms = excluded.changed_at_ms
    WHERE f.phase <> 'deleting'
    RETURNING f.token
),
line AS (
    INSERT INTO :"schema".lash_attachments AS a (
        session_key, attachment_id, media_type, byte_len, width, height, label, owner_kind, owner_id, intent_at_ms
    )
    SELECT
        session.session_key, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint, $7::text, $8::text, $9::text,
        clock.now_ms
    FROM clock, session, guard
    ON CONFLICT (session_key, attachment_id) DO UPDATE
    SET media_type = excluded.media_type, width = excluded.width, height = excluded.height, label = excluded.label,
        owner_kind = CASE
            WHEN a.committed_at_ms IS NULL AND excluded.owner_kind IS NOT NULL THEN excluded.owner_kind
            ELSE a.owner_kind
        END,
        owner_id = CASE
            WHEN a.committed_at_ms IS NULL AND excluded.owner_kind IS NOT NULL THEN excluded.owner_id
            ELSE a.owner_id
        END,
        intent_at_ms = CASE WHEN a.committed_at_ms IS NULL THEN excluded.intent_at_ms ELSE a.intent_at_ms END
)
SELECT session.session_key, guard.token
FROM session
LEFT JOIN guard ON true;

-- name: attachment_confirm
-- Whether a session still names a digest whose byte guard still has the token.
SELECT EXISTS (
    SELECT 1
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_attachments AS a ON a.session_key = s.session_key
    JOIN :"schema".lash_attachment_fences AS f ON f.attachment_id = a.attachment_id
    WHERE s.session_id = $1::text AND a.attachment_id = $2::text AND f.token = $3::text
);

-- name: attachment_row
-- One line of the manifest.
SELECT
    a.session_key, s.session_id, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.owner_kind,
    a.owner_id, a.intent_at_ms, a.committed_at_ms
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_attachments AS a ON a.session_key = s.session_key
WHERE s.session_id = $1::text AND a.attachment_id = $2::text;

-- name: attachment_lines
-- The lines of one session, after an id.
SELECT
    a.session_key, s.session_id, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.owner_kind,
    a.owner_id, a.intent_at_ms, a.committed_at_ms
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_attachments AS a ON a.session_key = s.session_key
WHERE s.session_id = $1::text AND a.attachment_id > $2::text
ORDER BY a.attachment_id
LIMIT $3::bigint;

-- name: attachment_stamp
-- Stamps the attachments of a session that have no stamp yet, and returns their ids. The condition stands in the new
-- value, not in WHERE: the result is right even if another transaction is writing a stamp.
UPDATE :"schema".lash_attachments AS a
SET committed_at_ms = coalesce(a.committed_at_ms, :"schema".lash_now_ms())
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text AND a.session_key = s.session_key AND a.attachment_id = ANY ($2::text[])
RETURNING a.attachment_id;

-- name: attachment_uncommitted
-- The lines without a stamp that are old enough, after a position of the list.
SELECT
    a.session_key, s.session_id, a.attachment_id, a.media_type, a.byte_len, a.width, a.height, a.label, a.owner_kind,
    a.owner_id, a.intent_at_ms, a.committed_at_ms
FROM :"schema".lash_attachments AS a
JOIN :"schema".lash_sessions AS s ON s.session_key = a.session_key
WHERE a.committed_at_ms IS NULL AND a.intent_at_ms <= $1::bigint
    AND (a.intent_at_ms, a.attachment_id, a.session_key) > ($2::bigint, $3::text, $4::bigint)
ORDER BY a.intent_at_ms, a.attachment_id, a.session_key
LIMIT $5::bigint;

-- name: attachment_forget
-- Removes a session's line.
DELETE FROM :"schema".lash_attachments AS a
USING :"schema".lash_sessions AS s
WHERE s.session_id = $1::text AND a.session_key = s.session_key AND a.attachment_id = $2::text
RETURNING true;

-- name: attachment_drop
-- Removes a session's line if it has no stamp and was not announced again.
DELETE FROM :"schema".lash_attachments
WHERE session_key = $1::bigint AND attachment_id = $2::text AND committed_at_ms IS NULL
    AND intent_at_ms = $3::bigint
RETURNING true;

-- name: attachment_names
-- How many sessions name each of the ids.
SELECT attachment_id, count(*)
FROM :"schema".lash_attachments
WHERE attachment_id = ANY ($1::text[])
GROUP BY attachment_id;

-- name: attachment_unnamed
-- Reads the next $2 byte guards after an id. Returns the time, the last id, and the guards that no session names.
WITH page AS MATERIALIZED (
    SELECT * FROM :"schema".lash_attachment_fences
    WHERE attachment_id > $1::text
    ORDER BY attachment_id
    LIMIT $2::bigint
)
SELECT
    :"schema".lash_now_ms(),
    (SELECT max(attachment_id) FROM page),
    array(
        SELECT row(f.attachment_id, f.byte_len, f.phase, f.version, f.token, f.sweeper, f.changed_at_ms)
        FROM page AS f
        -- OFFSET keeps this an index lookup for each guard; a join would read all names for every page.
        WHERE NOT EXISTS (
            SELECT 1 FROM :"schema".lash_attachments AS a WHERE a.attachment_id = f.attachment_id OFFSET 0
        )
        ORDER BY f.attachment_id
    );

-- name: attachment_move
-- Changes a byte guard that still has the version seen and whose digest no session names. The version alone would do,
-- because each statement that names the digest changes it. A retry after a lost answer finds its own change, and
-- succeeds.
UPDATE :"schema".lash_attachment_fences AS f
SET phase = $3::text, version = $2::bigint + 1, sweeper = $4::text, changed_at_ms = :"schema".lash_now_ms()
WHERE f.attachment_id = $1::text
    AND (
        f.version = $2::bigint
        OR (f.version = $2::bigint + 1 AND f.phase = $3::text AND f.sweeper IS NOT DISTINCT FROM $4::text)
    )
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_attachments AS a WHERE a.attachment_id = f.attachment_id)
RETURNING true;

-- name: attachment_remove
-- Deletes the byte guard whose bytes are gone.
DELETE FROM :"schema".lash_attachment_fences
WHERE attachment_id = $1::text AND version = $2::bigint AND phase = 'deleting'
RETURNING true;

-- name: attachment_bytes_put
-- Stores bytes; equal bytes are not written again, damaged ones are replaced.
INSERT INTO :"schema".lash_attachment_bytes AS b (attachment_id, codec, size, content)
VALUES ($1::text, $2::text, $3::bigint, $4::bytea)
ON CONFLICT (attachment_id) DO UPDATE
SET codec = excluded.codec, size = excluded.size, content = excluded.content
WHERE b.codec <> excluded.codec OR b.size <> excluded.size OR b.content <> excluded.content;

-- name: attachment_bytes_get
-- The bytes of one digest.
SELECT attachment_id, codec, size, content FROM :"schema".lash_attachment_bytes WHERE attachment_id = $1::text;

-- name: attachment_bytes_delete
-- Removes the bytes of one digest.
DELETE FROM :"schema".lash_attachment_bytes WHERE attachment_id = $1::text;
