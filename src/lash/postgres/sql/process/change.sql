-- fragment: change_after
-- The position page.xid, page.seq, or the one to which the feed was pruned if that is later.
after (xid, seq) AS MATERIALIZED (
    SELECT a.xid, a.seq
    FROM (
        SELECT page.xid, page.seq FROM page
        UNION ALL
        SELECT f.xid, f.seq FROM :"schema".lash_process_change_floor AS f
    ) AS a
    ORDER BY a.xid DESC, a.seq DESC
    LIMIT 1
)

-- fragment: change_entries
-- The entries of the feed after the position of a page, at most page.size: events, registrations and what is neither.
-- Entries at or above the oldest running transaction are held back: others could still appear below them. Each of the
-- five places is read in the order of its index and no further than the page; subqueries look up one process each.
-- include: change_after
,
entries (xid, seq, process_id, kind, sequence, status, occurred_at_ms) AS (
    SELECT *
    FROM (
        (
            SELECT
                e.xid, e.seq,
                (SELECT p.process_id FROM :"schema".lash_processes AS p WHERE p.process_key = e.process_key),
                'event' COLLATE "C", e.sequence, e.status, e.occurred_at_ms
            FROM :"schema".lash_process_events AS e
            WHERE (e.xid, e.seq) > (SELECT a.xid, a.seq FROM after AS a) AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY e.xid, e.seq
            LIMIT (SELECT page.size FROM page)
        )
        UNION ALL
        (
            SELECT p.start_xid, p.start_seq, p.process_id, 'event', p.start_sequence, 'running', p.created_at_ms
            FROM :"schema".lash_processes AS p
            WHERE p.start_seq IS NOT NULL
                AND (p.start_xid, p.start_seq) > (SELECT a.xid, a.seq FROM after AS a)
                AND p.start_xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY p.start_xid, p.start_seq
            LIMIT (SELECT page.size FROM page)
        )
        UNION ALL
        (
            SELECT p.end_xid, p.end_seq, p.process_id, 'event', p.end_sequence, p.status, p.ended_at_ms
            FROM :"schema".lash_processes AS p
            WHERE p.end_seq IS NOT NULL
                AND (p.end_xid, p.end_seq) > (SELECT a.xid, a.seq FROM after AS a)
                AND p.end_xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY p.end_xid, p.end_seq
            LIMIT (SELECT page.size FROM page)
        )
        UNION ALL
        (
            SELECT p.registered_xid, p.registered_seq, p.process_id, 'registered', NULL, 'running', p.created_at_ms
            FROM :"schema".lash_processes AS p
            WHERE (p.registered_xid, p.registered_seq) > (SELECT a.xid, a.seq FROM after AS a)
                AND p.registered_xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY p.registered_xid, p.registered_seq
            LIMIT (SELECT page.size FROM page)
        )
        UNION ALL
        (
            SELECT c.xid, c.seq, c.process_id, c.kind, c.sequence, c.status, c.occurred_at_ms
            FROM :"schema".lash_process_changes AS c
            WHERE (c.xid, c.seq) > (SELECT a.xid, a.seq FROM after AS a) AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY c.xid, c.seq
            LIMIT (SELECT page.size FROM page)
        )
    ) AS entry (xid, seq, process_id, kind, sequence, status, occurred_at_ms)
    ORDER BY entry.xid, entry.seq
    LIMIT (SELECT page.size FROM page)
)

-- fragment: change_feed
-- The epoch of the feed, how far it was pruned, whether the position $1, $2 is one of its entries, and the oldest
-- running transaction if it holds entries back.
SELECT
    coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), ''),
    coalesce(f.seq, 0), coalesce(f.xid, '0'::xid8)::text,
    EXISTS (
        SELECT 1 FROM :"schema".lash_process_log AS k WHERE k.xid = $1::text::xid8 AND k.seq = $2::bigint
    )
    OR EXISTS (
        SELECT 1 FROM :"schema".lash_processes AS k
        WHERE k.registered_xid = $1::text::xid8 AND k.registered_seq = $2::bigint
    )
    OR EXISTS (
        SELECT 1 FROM :"schema".lash_process_changes AS k WHERE k.seq = $2::bigint AND k.xid = $1::text::xid8
    ),
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

-- name: process_changes_after
-- The entries after a position of the feed, at most $3, in its order.
-- include: change_feed
    array(
        WITH page (xid, seq, size) AS MATERIALIZED (SELECT $1::text::xid8, $2::bigint, $3::bigint),
-- include: change_entries
        SELECT row(c.seq, c.process_id, c.kind, c.sequence, c.status, c.xid::text)
        FROM entries AS c
        ORDER BY c.xid, c.seq
    )
FROM (VALUES (true)) AS always (one)
LEFT JOIN :"schema".lash_process_change_floor AS f ON f.one = always.one;

-- name: event_tail
-- The events of all processes after a position of the feed, at most $3; held back as in change_entries.
-- include: change_feed
    array(
        WITH page (xid, seq) AS MATERIALIZED (SELECT $1::text::xid8, $2::bigint),
-- include: change_after
        SELECT row(
            e.seq, (SELECT p.process_id FROM :"schema".lash_processes AS p WHERE p.process_key = e.process_key),
            e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms, e.xid::text
        )
        FROM (
            SELECT *
            FROM (
                (
                    SELECT
                        e.xid, e.seq, e.process_key, e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload,
                        e.wake, e.occurred_at_ms
                    FROM :"schema".lash_process_events AS e
                    WHERE (e.xid, e.seq) > (SELECT a.xid, a.seq FROM after AS a) AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
                    ORDER BY e.xid, e.seq
                    LIMIT $3::bigint
                )
                UNION ALL
                (
                    SELECT
                        p.start_xid, p.start_seq, p.process_key, p.start_sequence, 'process.started', p.start_replay_key,
                        p.start_payload_hash, p.start_payload, NULL, p.created_at_ms
                    FROM :"schema".lash_processes AS p
                    WHERE p.start_seq IS NOT NULL
                        AND (p.start_xid, p.start_seq) > (SELECT a.xid, a.seq FROM after AS a)
                        AND p.start_xid < pg_snapshot_xmin(pg_current_snapshot())
                    ORDER BY p.start_xid, p.start_seq
                    LIMIT $3::bigint
                )
                UNION ALL
                (
                    SELECT
                        p.end_xid, p.end_seq, p.process_key, p.end_sequence, p.end_type, p.end_replay_key,
                        p.end_payload_hash, p.end_payload, p.end_wake, p.ended_at_ms
                    FROM :"schema".lash_processes AS p
                    WHERE p.end_seq IS NOT NULL
                        AND (p.end_xid, p.end_seq) > (SELECT a.xid, a.seq FROM after AS a)
                        AND p.end_xid < pg_snapshot_xmin(pg_current_snapshot())
                    ORDER BY p.end_xid, p.end_seq
                    LIMIT $3::bigint
                )
            ) AS entry
            ORDER BY entry.xid, entry.seq
            LIMIT $3::bigint
        ) AS e
    )
FROM (VALUES (true)) AS always (one)
LEFT JOIN :"schema".lash_process_change_floor AS f ON f.one = always.one;

-- name: activity_process_changes
-- The entries after the position $1, $2 of the feed, at most $3, and whether the session $4 may see their processes. No
-- row if the session does not exist.
-- include: change_feed
    array(
        WITH page (xid, seq, size) AS MATERIALIZED (SELECT $1::text::xid8, $2::bigint, $3::bigint),
-- include: change_entries
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
        FROM entries AS c
        ORDER BY c.xid, c.seq
    )
FROM :"schema".lash_sessions AS s
LEFT JOIN :"schema".lash_process_change_floor AS f ON true
WHERE s.session_id = $4::text;

-- name: change_end
-- The end of the feed, as in activity_read, and its epoch.
SELECT e.xid::text, e.seq, coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), '')
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
        SELECT 1 FROM :"schema".lash_process_log AS n WHERE n.xid >= pg_snapshot_xmax(pg_current_snapshot())
    )
    OR EXISTS (
        SELECT 1 FROM :"schema".lash_processes AS p WHERE p.registered_xid >= pg_snapshot_xmax(pg_current_snapshot())
    )
    OR EXISTS (
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

-- name: change_rebased
-- The highest number that an earlier rebase has put before all transactions; 0 without one.
SELECT coalesce(max(r.seq), 0)
FROM (
    (SELECT e.seq FROM :"schema".lash_process_events AS e WHERE e.xid = '2'::xid8 ORDER BY e.seq DESC LIMIT 1)
    UNION ALL
    (
        SELECT p.start_seq FROM :"schema".lash_processes AS p
        WHERE p.start_xid = '2'::xid8 AND p.start_seq IS NOT NULL ORDER BY p.start_seq DESC LIMIT 1
    )
    UNION ALL
    (
        SELECT p.end_seq FROM :"schema".lash_processes AS p
        WHERE p.end_xid = '2'::xid8 AND p.end_seq IS NOT NULL ORDER BY p.end_seq DESC LIMIT 1
    )
    UNION ALL
    (
        SELECT p.registered_seq FROM :"schema".lash_processes AS p
        WHERE p.registered_xid = '2'::xid8 ORDER BY p.registered_seq DESC LIMIT 1
    )
    UNION ALL
    (SELECT c.seq FROM :"schema".lash_process_changes AS c WHERE c.xid = '2'::xid8 ORDER BY c.seq DESC LIMIT 1)
) AS r (seq);

-- name: change_rebase_events
-- Puts at most $1 events before all transactions of this server, in the order of their numbers: before the others the
-- ones that the feed was pruned of. Returns how many.
WITH old AS (
    SELECT o.process_key, o.sequence, o.xid, o.seq
    FROM :"schema".lash_process_events AS o
    WHERE o.xid > '2'::xid8
    ORDER BY o.xid, o.seq
    LIMIT $1::bigint
),
moved AS (
    UPDATE :"schema".lash_process_events AS e
    SET xid = CASE
        WHEN EXISTS (
            SELECT 1 FROM :"schema".lash_process_change_floor AS f WHERE (old.xid, old.seq) <= (f.xid, f.seq)
        ) THEN '1'::xid8
        ELSE '2'::xid8
    END
    FROM old
    WHERE e.process_key = old.process_key AND e.sequence = old.sequence
    RETURNING 1
)
SELECT count(*) FROM moved;

-- name: change_rebase_starts
-- change_rebase_events for the events of starts in the rows of processes.
WITH old AS (
    SELECT o.process_key, o.start_xid AS xid, o.start_seq AS seq
    FROM :"schema".lash_processes AS o
    WHERE o.start_xid > '2'::xid8 AND o.start_seq IS NOT NULL
    ORDER BY o.start_xid, o.start_seq
    LIMIT $1::bigint
),
moved AS (
    UPDATE :"schema".lash_processes AS p
    SET start_xid = CASE
        WHEN EXISTS (
            SELECT 1 FROM :"schema".lash_process_change_floor AS f WHERE (old.xid, old.seq) <= (f.xid, f.seq)
        ) THEN '1'::xid8
        ELSE '2'::xid8
    END
    FROM old
    WHERE p.process_key = old.process_key
    RETURNING 1
)
SELECT count(*) FROM moved;

-- name: change_rebase_ends
-- change_rebase_events for the events of ends in the rows of processes.
WITH old AS (
    SELECT o.process_key, o.end_xid AS xid, o.end_seq AS seq
    FROM :"schema".lash_processes AS o
    WHERE o.end_xid > '2'::xid8 AND o.end_seq IS NOT NULL
    ORDER BY o.end_xid, o.end_seq
    LIMIT $1::bigint
),
moved AS (
    UPDATE :"schema".lash_processes AS p
    SET end_xid = CASE
        WHEN EXISTS (
            SELECT 1 FROM :"schema".lash_process_change_floor AS f WHERE (old.xid, old.seq) <= (f.xid, f.seq)
        ) THEN '1'::xid8
        ELSE '2'::xid8
    END
    FROM old
    WHERE p.process_key = old.process_key
    RETURNING 1
)
SELECT count(*) FROM moved;

-- name: change_rebase_registrations
-- change_rebase_events for the registrations of processes.
WITH old AS (
    SELECT o.process_key, o.registered_xid AS xid, o.registered_seq AS seq
    FROM :"schema".lash_processes AS o
    WHERE o.registered_xid > '2'::xid8
    ORDER BY o.registered_xid, o.registered_seq
    LIMIT $1::bigint
),
moved AS (
    UPDATE :"schema".lash_processes AS p
    SET registered_xid = CASE
        WHEN EXISTS (
            SELECT 1 FROM :"schema".lash_process_change_floor AS f WHERE (old.xid, old.seq) <= (f.xid, f.seq)
        ) THEN '1'::xid8
        ELSE '2'::xid8
    END
    FROM old
    WHERE p.process_key = old.process_key
    RETURNING 1
)
SELECT count(*) FROM moved;

-- name: change_rebase_others
-- change_rebase_events for the entries that are neither events nor registrations.
WITH old AS (
    SELECT o.seq, o.xid
    FROM :"schema".lash_process_changes AS o
    WHERE o.xid > '2'::xid8
    ORDER BY o.xid, o.seq
    LIMIT $1::bigint
),
moved AS (
    UPDATE :"schema".lash_process_changes AS c
    SET xid = CASE
        WHEN EXISTS (
            SELECT 1 FROM :"schema".lash_process_change_floor AS f WHERE (old.xid, old.seq) <= (f.xid, f.seq)
        ) THEN '1'::xid8
        ELSE '2'::xid8
    END
    FROM old
    WHERE c.seq = old.seq
    RETURNING 1
)
SELECT count(*) FROM moved;

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

-- name: change_rebase_floor
-- Lets the feed begin after what it was pruned of, as change_rebase_events has put that: before transaction 2, or up to the
-- number $1 of an earlier rebase.
UPDATE :"schema".lash_process_change_floor SET xid = '2'::xid8, seq = $1::bigint WHERE xid > '2'::xid8;

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

-- fragment: change_raise_floor
-- Lets the feed begin after the chosen entries, and removes rows that were only there for the feed. Entries of a process
-- that was pruned meanwhile may be behind the position already. Returns how many entries were chosen.
floor AS (
    INSERT INTO :"schema".lash_process_change_floor AS f (one, xid, seq)
    SELECT true, g.xid, g.seq FROM seen AS g ORDER BY g.xid DESC, g.seq DESC LIMIT 1
    ON CONFLICT (one) DO UPDATE SET xid = excluded.xid, seq = excluded.seq
    WHERE (excluded.xid, excluded.seq) > (f.xid, f.seq)
    RETURNING f.xid, f.seq
),
forgotten AS (
    DELETE FROM :"schema".lash_process_changes AS c USING floor WHERE (c.xid, c.seq) <= (floor.xid, floor.seq)
)
SELECT count(*) FROM seen;

-- name: change_forget
-- Removes at most $3 entries that every reader of the feed has seen; none if $4 is not its epoch.
WITH page (xid, seq, size) AS MATERIALIZED (SELECT '0'::xid8, 0::bigint, $3::bigint),
-- include: change_entries
,
seen AS MATERIALIZED (
    SELECT c.xid, c.seq
    FROM entries AS c
    WHERE (c.xid, c.seq) <= ($1::text::xid8, $2::bigint)
        AND $4::text = (SELECT e.epoch FROM :"schema".lash_process_change_epoch AS e)
),
-- include: change_raise_floor

-- name: change_before
-- Removes the oldest entries, at most $2, that all happened before $1.
WITH page (xid, seq, size) AS MATERIALIZED (SELECT '0'::xid8, 0::bigint, $2::bigint),
-- include: change_entries
,
oldest AS MATERIALIZED (SELECT c.xid, c.seq, c.occurred_at_ms FROM entries AS c),
seen AS MATERIALIZED (
    SELECT o.xid, o.seq
    FROM oldest AS o
    WHERE NOT EXISTS (
        SELECT 1 FROM oldest AS y WHERE y.occurred_at_ms >= $1::bigint AND (y.xid, y.seq) <= (o.xid, o.seq)
    )
),
-- include: change_raise_floor
