-- fragment: change_entries
-- The entries of the feed after a position, or after the one to which it was pruned: events, registrations and what is
-- neither. Each of the five places is read in the order of its numbers. The casts give their columns the same affinity:
-- without it, SQLite reads the rest of the feed for each page.
(
    SELECT e.seq, p.process_id, CAST('event' AS TEXT) AS kind, e.sequence, e.status, e.occurred_at_ms
    FROM lash_process_events AS e
    CROSS JOIN lash_processes AS p ON p.process_key = e.process_key
    WHERE e.seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
    UNION ALL
    SELECT
        p.start_seq, p.process_id, CAST('event' AS TEXT), p.start_sequence, CAST('running' AS TEXT), p.created_at_ms
    FROM lash_processes AS p INDEXED BY lash_processes_started_feed
    WHERE p.start_seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
    UNION ALL
    SELECT p.end_seq, p.process_id, CAST('event' AS TEXT), p.end_sequence, p.status, p.ended_at_ms
    FROM lash_processes AS p INDEXED BY lash_processes_ended_feed
    WHERE p.end_seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
    UNION ALL
    SELECT
        p.registered_seq, p.process_id, CAST('registered' AS TEXT), CAST(NULL AS INTEGER), CAST('running' AS TEXT),
        p.created_at_ms
    FROM lash_processes AS p INDEXED BY lash_processes_registered
    WHERE p.registered_seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
    UNION ALL
    SELECT c.seq, c.process_id, c.kind, c.sequence, c.status, c.occurred_at_ms
    FROM lash_process_changes AS c
    WHERE c.seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
)

-- name: process_changes_after
-- The entries after a position of the feed, in its order.
SELECT c.seq, c.process_id, c.kind, c.sequence, c.status
FROM
-- include: change_entries
AS c
ORDER BY c.seq
LIMIT :limit;

-- name: activity_process_changes
-- The entries after a position of the feed, and whether a session may see their processes.
SELECT
    c.seq, c.process_id, c.kind, c.sequence, c.status,
    EXISTS (
        SELECT 1
        FROM lash_processes AS p
        WHERE p.process_id = c.process_id AND (
            p.wake_session_id = :session_id
            OR EXISTS (SELECT 1 FROM lash_grants AS g WHERE g.process_key = p.process_key AND g.session_id = :session_id)
        )
    )
FROM
-- include: change_entries
AS c
ORDER BY c.seq
LIMIT :limit;

-- name: change_feed
-- The epoch of the feed, how far it was pruned, and whether a position is not beyond its end.
SELECT
    COALESCE((SELECT epoch FROM lash_process_change_epoch WHERE one = 1), ''),
    COALESCE((SELECT seq FROM lash_process_change_floor WHERE one = 1), 0), 0,
    :after <= (SELECT d.seq FROM lash_process_change_end AS d);

-- name: change_end
-- The end of the feed and its epoch.
SELECT
    0, (SELECT d.seq FROM lash_process_change_end AS d),
    COALESCE((SELECT epoch FROM lash_process_change_epoch WHERE one = 1), '');

-- name: change_begin_epoch
-- Begins a new epoch of the feed.
INSERT INTO lash_process_change_epoch (one, epoch) VALUES (1, :epoch)
ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch;

-- name: change_insert
-- Adds an entry to the feed that is neither an event nor a registration.
INSERT INTO lash_process_changes (seq, process_id, kind, sequence, status, occurred_at_ms)
SELECT d.seq + 1, :process_id, :kind, NULL, :status, :now_ms
FROM lash_process_change_end AS d;

-- name: change_keep
-- Keeps the entries of a process that is about to be pruned, unless the feed was pruned of them.
INSERT INTO lash_process_changes (seq, process_id, kind, sequence, status, occurred_at_ms)
SELECT p.registered_seq, p.process_id, 'registered', NULL, 'running', p.created_at_ms
FROM lash_processes AS p
WHERE p.process_key = :process_key
    AND p.registered_seq > COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0)
UNION ALL
SELECT
    e.seq, (SELECT p.process_id FROM lash_processes AS p WHERE p.process_key = :process_key), 'event', e.sequence,
    e.status, e.occurred_at_ms
FROM lash_process_log AS e
WHERE e.process_key = :process_key
    AND e.seq > COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0);

-- name: change_before
-- The position of the last of the oldest entries, at most :limit, that all happened before a moment (0 if there is none),
-- and how many they are.
WITH oldest AS MATERIALIZED (
    SELECT c.seq, c.occurred_at_ms
    FROM
-- include: change_entries
    AS c
    ORDER BY c.seq
    LIMIT :limit
)
SELECT COALESCE(MAX(o.seq), 0), COUNT(*)
FROM oldest AS o
WHERE o.seq < COALESCE((SELECT MIN(y.seq) FROM oldest AS y WHERE y.occurred_at_ms >= :before_ms), 9223372036854775807);

-- name: change_raise_floor
-- Records how far the feed is pruned, but not beyond its end.
INSERT INTO lash_process_change_floor (one, seq)
SELECT 1, MIN(:through, d.seq)
FROM lash_process_change_end AS d
WHERE :through > 0
ON CONFLICT (one) DO UPDATE SET seq = MAX(seq, excluded.seq);

-- name: change_forget
-- Removes rows that were only there for entries of which the feed is pruned.
DELETE FROM lash_process_changes WHERE seq <= :through;
