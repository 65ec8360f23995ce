-- name: activity_move_tail
-- Takes the next positions of a session, and starts its numbering if it has none.
INSERT INTO lash_activity_tails (session_key, epoch, position, written_bytes)
VALUES (:session_key, :epoch, :count, :size)
ON CONFLICT (session_key) DO UPDATE
SET position = position + excluded.position, written_bytes = written_bytes + excluded.written_bytes
RETURNING position, written_bytes;

-- name: activity_insert
-- Adds one row of activity.
INSERT INTO lash_activity (session_key, position, revision, written_bytes, created_at_ms, body)
VALUES (:session_key, :position, :revision, :written_bytes, :now_ms, :body);

-- name: activity_trim
-- Removes the oldest rows that exceed a limit; only some of the oldest are checked.
DELETE FROM lash_activity
WHERE session_key = :session_key AND position <= (
    SELECT MAX(a.position)
    FROM (
        SELECT o.position, o.written_bytes, o.created_at_ms
        FROM lash_activity AS o
        WHERE o.session_key = :session_key
        ORDER BY o.position
        LIMIT :front
    ) AS a
    WHERE a.position <= :position_floor OR a.written_bytes <= :bytes_floor OR a.created_at_ms < :before_ms
);

-- name: activity_session
-- The state of a session: its head, its activity, its queue (counted up to a limit) and the change feed.
SELECT
    s.session_key, s.revision, t.epoch, t.position, q.queued, q.claimed, q.newest_seq, d.dead,
    (SELECT c.seq FROM lash_process_change_end AS c), 0,
    COALESCE((SELECT e.epoch FROM lash_process_change_epoch AS e WHERE e.one = 1), '')
FROM lash_sessions AS s
LEFT JOIN lash_activity_tails AS t ON t.session_key = s.session_key
CROSS JOIN (
    SELECT COUNT(*) AS queued, COUNT(b.claim_token) AS claimed, MAX(b.seq) AS newest_seq
    FROM (
        SELECT n.seq, n.claim_token
        FROM lash_batches AS n INDEXED BY lash_batches_id
        WHERE n.session_key = (SELECT k.session_key FROM lash_sessions AS k WHERE k.session_id = :session_id)
        ORDER BY n.batch_id DESC
        LIMIT :counted
    ) AS b
) AS q
CROSS JOIN (
    SELECT COUNT(*) AS dead
    FROM (
        SELECT 1
        FROM lash_dead_letters AS l INDEXED BY lash_dead_letters_session
        WHERE l.session_key = (SELECT k.session_key FROM lash_sessions AS k WHERE k.session_id = :session_id)
        LIMIT :counted
    )
) AS d
WHERE s.session_id = :session_id;

-- name: activity_after
-- The activity of a session after a position.
SELECT position, revision, body, created_at_ms
FROM lash_activity
WHERE session_key = :session_key AND position > :position
ORDER BY position
LIMIT :limit;
