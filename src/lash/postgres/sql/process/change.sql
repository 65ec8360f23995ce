-- fragment: change_feed
-- The epoch of the feed, how far it was pruned, whether the position $1, $2 is one of its changes, and the oldest
-- running transaction if it holds changes back.
SELECT
    coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), ''),
    coalesce(f.seq, 0), coalesce(f.xid, '0'::xid8)::text,
    EXISTS (
        SELECT 1 FROM :"schema".lash_process_changes AS k WHERE k.seq = $2::bigint AND k.xid = $1::text::xid8
    ),
    (
        SELECT pg_snapshot_xmin(pg_current_snapshot())::text
        FROM :"schema".lash_process_changes AS h
        WHERE h.xid >= pg_snapshot_xmin(pg_current_snapshot())
        LIMIT 1
    ),

-- name: process_changes_after
-- The changes after a position of the feed, at most $3. Changes at or above the oldest running transaction are held
-- back: others could still appear below them.
-- include: change_feed
    array(
        SELECT row(c.seq, c.process_id, c.kind, c.sequence, c.status, c.xid::text)
        FROM :"schema".lash_process_changes AS c
        WHERE (c.xid, c.seq) > ($1::text::xid8, $2::bigint) AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY c.xid, c.seq
        LIMIT $3::bigint
    )
FROM (VALUES (true)) AS always (one)
LEFT JOIN :"schema".lash_process_change_floor AS f ON f.one = always.one;

-- name: event_tail
-- The events of all processes after a position of the feed of changes, at most $3; held back as in
-- process_changes_after. A change of a pruned process is not taken for one of a later process of the same id.
-- include: change_feed
    array(
        WITH pruned AS MATERIALIZED (
            SELECT process_id, max(seq) AS seq
            FROM :"schema".lash_process_changes
            WHERE (xid, seq) > ($1::text::xid8, $2::bigint) AND kind = 'pruned'
            GROUP BY process_id
        )
        SELECT row(
            c.seq, c.process_id, e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake,
            e.occurred_at_ms, c.xid::text
        )
        FROM :"schema".lash_process_changes AS c
        JOIN :"schema".lash_processes AS p ON p.process_id = c.process_id
        JOIN :"schema".lash_process_events AS e ON e.process_key = p.process_key AND e.sequence = c.sequence
        LEFT JOIN pruned AS g ON g.process_id = c.process_id
        WHERE (c.xid, c.seq) > ($1::text::xid8, $2::bigint) AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
            AND c.kind = 'event' AND (g.seq IS NULL OR c.seq > g.seq)
        ORDER BY c.xid, c.seq
        LIMIT $3::bigint
    )
FROM (VALUES (true)) AS always (one)
LEFT JOIN :"schema".lash_process_change_floor AS f ON f.one = always.one;

-- name: activity_process_changes
-- The changes after the position $1, $2 of the feed, at most $3, and whether the session $4 may see their processes;
-- held back as in process_changes_after. No row if the session does not exist.
-- include: change_feed
    array(
        SELECT row(
            c.seq, c.process_id, c.kind, c.sequence, c.status,
            EXISTS (
                SELECT 1
                FROM :"schema".lash_processes AS p
                WHERE p.process_id = c.process_id AND (
                    p.wake_session_id = $4::text
                    OR EXISTS (
                        SELECT 1 FROM :"schema".lash_grants AS g
                        WHERE g.process_key = p.process_key AND g.session_id = $4::text
                    )
                )
            ),
            c.xid::text
        )
        FROM :"schema".lash_process_changes AS c
        WHERE (c.xid, c.seq) > ($1::text::xid8, $2::bigint) AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY c.xid, c.seq
        LIMIT $3::bigint
    )
FROM :"schema".lash_sessions AS s
LEFT JOIN :"schema".lash_process_change_floor AS f ON true
WHERE s.session_id = $4::text;

-- name: change_end
-- The end of the feed, as in activity_read, and its epoch.
SELECT e.xid::text, e.seq, coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), '')
FROM (
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
LIMIT 1;

-- name: change_holder
-- The session or the prepared transaction that runs the transaction $1, and for how many seconds; the server hides some
-- of it from a role that is not its own.
SELECT a.pid, a.datname::text, a.usename::text, a.application_name, a.state,
    extract(epoch FROM clock_timestamp() - a.xact_start)::float8
FROM pg_stat_activity AS a
WHERE a.backend_xid = $1::text::xid8::xid
UNION ALL
SELECT NULL, p.database::text, p.owner::text, p.gid, 'prepared', extract(epoch FROM clock_timestamp() - p.prepared)::float8
FROM pg_prepared_xacts AS p
WHERE p.transaction = $1::text::xid8::xid
LIMIT 1;

-- name: change_epoch
-- The epoch of the feed, where it was begun, where the storage is now, and whether the feed has a transaction id that
-- this server has not given out. Returns no row before the first epoch.
SELECT
    e.epoch, e.system_id, e.place, :"schema".lash_system_id(),
    (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())::text || '/' || e.tableoid::text,
    EXISTS (
        SELECT 1 FROM :"schema".lash_process_changes AS c WHERE c.xid >= pg_snapshot_xmax(pg_current_snapshot())
    )
    OR EXISTS (
        SELECT 1 FROM :"schema".lash_process_change_floor AS f WHERE f.xid >= pg_snapshot_xmax(pg_current_snapshot())
    )
    OR EXISTS (
        SELECT 1 FROM :"schema".lash_sessions AS s
        WHERE s.change_page >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint / 1024
            AND s.changed_xid >= pg_snapshot_xmax(pg_current_snapshot())
    )
    OR EXISTS (
        SELECT 1 FROM :"schema".lash_session_ids AS i WHERE i.changed_xid >= pg_snapshot_xmax(pg_current_snapshot())
    )
FROM :"schema".lash_process_change_epoch AS e;

-- name: change_rebase
-- Puts at most $2 changes after the position $1 before all transactions of this server, in the order of their positions.
-- Returns the last one, NULL after all.
WITH old AS (
    SELECT c.seq FROM :"schema".lash_process_changes AS c WHERE c.seq > $1::bigint ORDER BY c.seq LIMIT $2::bigint
),
moved AS (
    UPDATE :"schema".lash_process_changes AS c SET xid = '2'::xid8 FROM old WHERE c.seq = old.seq AND c.xid > '2'::xid8
)
SELECT max(old.seq) FROM old;

-- name: change_rebase_sessions
-- Puts at most $2 sessions after the key $1 before all transactions of this server. Returns the last one, NULL after all.
WITH old AS (
    SELECT s.session_key FROM :"schema".lash_sessions AS s
    WHERE s.session_key > $1::bigint ORDER BY s.session_key LIMIT $2::bigint
),
moved AS (
    UPDATE :"schema".lash_sessions AS s SET changed_xid = '2'::xid8
    FROM old
    WHERE s.session_key = old.session_key AND s.changed_xid > '2'::xid8
)
SELECT max(old.session_key) FROM old;

-- name: change_forget_deletions
-- Takes at most $1 deleted sessions out of the feed: a reader of the new epoch begins with the sessions that exist.
UPDATE :"schema".lash_session_ids
SET changed_xid = NULL
WHERE session_id IN (
    SELECT i.session_id FROM :"schema".lash_session_ids AS i WHERE i.changed_xid IS NOT NULL LIMIT $1::bigint
);

-- name: change_forget_floor
-- Forgets how far the feed was pruned; no cursor of the new epoch is before that.
DELETE FROM :"schema".lash_process_change_floor;

-- name: change_begin_epoch
-- Begins the epoch $1 of the feed, here.
INSERT INTO :"schema".lash_process_change_epoch AS e (one, epoch, system_id, place)
SELECT
    true, $1::text, :"schema".lash_system_id(),
    (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())::text || '/' || t.oid::text
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
WHERE t.relname = 'lash_process_change_epoch' AND n.nspname = $2::text
ON CONFLICT (one) DO UPDATE
SET epoch = excluded.epoch, system_id = coalesce(excluded.system_id, e.system_id), place = excluded.place;
