-- name: activity_append
-- Appends the bodies $2, whose bytes add up to $3, in one statement: takes the next positions, writes the rows, and
-- removes the oldest rows that exceed a limit ($4 items, $5 bytes, age $6), checking at most $7 of them. Returns the
-- newest position; no row if the session has no activity yet. The lock on the tail serialises appends; the session
-- itself is not locked.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
tail AS (
    UPDATE :"schema".lash_activity_tails AS t
    SET position = t.position + cardinality($2::text[]),
        written_bytes = t.written_bytes + ($3::bigint[])[cardinality($3::bigint[])]
    FROM :"schema".lash_sessions AS s
    WHERE s.session_id = $1::text AND t.session_key = s.session_key
    RETURNING
        t.session_key, t.position, t.written_bytes, s.revision,
        t.position - cardinality($2::text[]) AS old_position,
        t.written_bytes - ($3::bigint[])[cardinality($3::bigint[])] AS old_bytes
),
items AS (
    INSERT INTO :"schema".lash_activity (session_key, position, revision, written_bytes, created_at_ms, body)
    SELECT
        tail.session_key, tail.old_position + item.ordinal, tail.revision, tail.old_bytes + item.size, clock.now_ms,
        item.body
    FROM tail, clock, unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS item (body, size, ordinal)
),
stale AS (
    SELECT tail.session_key, max(a.position) AS position
    FROM tail, clock, LATERAL (
        SELECT o.position, o.written_bytes, o.created_at_ms
        FROM :"schema".lash_activity AS o
        WHERE o.session_key = tail.session_key
        ORDER BY o.position
        LIMIT $7::bigint
    ) AS a
    WHERE a.position <= tail.position - $4::bigint OR a.written_bytes <= tail.written_bytes - $5::bigint
        OR a.created_at_ms < clock.now_ms - $6::bigint
    GROUP BY tail.session_key
),
gone AS (
    DELETE FROM :"schema".lash_activity AS a
    USING stale
    WHERE a.session_key = stale.session_key AND a.position <= stale.position
)
SELECT tail.position FROM tail;

-- name: activity_start
-- Starts the numbering of a session under the epoch $2, unless it has one. The lock prevents a concurrent deletion of
-- the session; it does not wait for commits.
INSERT INTO :"schema".lash_activity_tails (session_key, epoch, position, written_bytes)
SELECT s.session_key, $2::text, 0, 0
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text
FOR KEY SHARE
ON CONFLICT (session_key) DO NOTHING
RETURNING true;

-- name: activity_read
-- The state of a session, and its activity after position $2 (NULL: none), at most $3 rows; its queue is counted up to
-- $4. The end of the change feed is the position below which no running transaction can still add a change; pruned
-- changes count. The oldest running transaction is returned if it holds changes back.
SELECT
    s.session_key, s.revision, t.epoch, t.position, q.queued, q.claimed, q.newest_seq, d.dead, f.seq, f.xid::text,
    coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), ''),
    (
        SELECT pg_snapshot_xmin(pg_current_snapshot())::text
        WHERE EXISTS (
                SELECT 1 FROM :"schema".lash_process_log AS h WHERE h.xid >= pg_snapshot_xmin(pg_current_snapshot())
            )
            OR EXISTS (
                SELECT 1 FROM :"schema".lash_processes AS h
                WHERE h.registered_xid >= pg_snapshot_xmin(pg_current_snapshot())
            )
            OR EXISTS (
                SELECT 1 FROM :"schema".lash_process_changes AS h WHERE h.xid >= pg_snapshot_xmin(pg_current_snapshot())
            )
    ),
    array(
        SELECT row(a.position, a.revision, a.body, a.created_at_ms)
        FROM :"schema".lash_activity AS a
        WHERE a.session_key = s.session_key AND a.position > $2::bigint
        ORDER BY a.position
        LIMIT $3::bigint
    )
FROM :"schema".lash_sessions AS s
LEFT JOIN :"schema".lash_activity_tails AS t ON t.session_key = s.session_key
CROSS JOIN LATERAL (
    SELECT count(*) AS queued, count(b.claim_token) AS claimed, max(b.seq) AS newest_seq
    FROM (
        SELECT n.seq, n.claim_token
        FROM :"schema".lash_batches AS n
        WHERE n.session_key = s.session_key
        ORDER BY n.seq DESC
        LIMIT $4::bigint
    ) AS b
) AS q
CROSS JOIN LATERAL (
    SELECT count(*) AS dead
    FROM (
        SELECT 1
        FROM :"schema".lash_dead_letters AS l
        WHERE l.session_key = s.session_key
        LIMIT $4::bigint
    ) AS n
) AS d
CROSS JOIN LATERAL (
    SELECT e.xid, e.seq
    FROM (
        (
            SELECT n.xid, n.seq
            FROM :"schema".lash_process_events AS n
            WHERE n.xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY n.xid DESC, n.seq DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT p.start_xid, p.start_seq
            FROM :"schema".lash_processes AS p
            WHERE p.start_seq IS NOT NULL AND p.start_xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY p.start_xid DESC, p.start_seq DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT p.end_xid, p.end_seq
            FROM :"schema".lash_processes AS p
            WHERE p.end_seq IS NOT NULL AND p.end_xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY p.end_xid DESC, p.end_seq DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT p.registered_xid, p.registered_seq
            FROM :"schema".lash_processes AS p
            WHERE p.registered_xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY p.registered_xid DESC, p.registered_seq DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT c.xid, c.seq
            FROM :"schema".lash_process_changes AS c
            WHERE c.xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY c.xid DESC, c.seq DESC
            LIMIT 1
        )
        UNION ALL
        SELECT o.xid, o.seq FROM :"schema".lash_process_change_floor AS o
        UNION ALL
        SELECT '0'::xid8, 0
    ) AS e
    ORDER BY e.xid DESC, e.seq DESC
    LIMIT 1
) AS f
WHERE s.session_id = $1::text;
