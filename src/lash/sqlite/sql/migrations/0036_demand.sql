-- additive: a view that older code does not read, and a table for the numbers of additive migrations.

-- Additive migrations: code of an older version goes on working after them. The others are in lash_migrations, where
-- every version looks for a number that it does not know. Its name is not one of lash's tables: rows are not moved.
-- Owner: the storage; never removed.
CREATE TABLE lashadditions (
    number        INTEGER PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    applied_at_ms INTEGER NOT NULL
) STRICT;

-- How much work there is for workers, for programs that start and stop them. Its columns keep their names and meanings;
-- later versions may add some. Each number is counted up to 10,000. Apart from that, the cost depends on how many
-- sessions and processes are ready or run, and not on how much is queued, parked or stored.
CREATE VIEW lash_demand AS
WITH RECURSIVE clock AS MATERIALIZED (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now_ms),
-- One step through the index per session that has queued work, not per batch.
walk (session_key, place) AS (
    SELECT
        (
            SELECT b.session_key FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.available_at_ms = 0
            ORDER BY b.session_key
            LIMIT 1
        ),
        1
    UNION ALL
    SELECT
        (
            SELECT b.session_key FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.available_at_ms = 0 AND b.session_key > w.session_key
            ORDER BY b.session_key
            LIMIT 1
        ),
        w.place + 1
    FROM walk AS w
    WHERE w.session_key IS NOT NULL AND w.place < 10000
),
lanes (lane) AS (VALUES ('command'), ('early'), ('late')),
-- Queued input, delayed input that is due, parked turns that can be claimed, and those with a reason to continue that
-- no worker has counted yet.
waiting (session_key, since_ms, is_woken) AS (
    SELECT
        w.session_key,
        (
            SELECT b.enqueued_at_ms FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.session_key = w.session_key AND b.lane = lanes.lane AND b.available_at_ms = 0
            ORDER BY b.seq
            LIMIT 1
        ),
        0
    FROM walk AS w
    CROSS JOIN lanes
    WHERE w.session_key IS NOT NULL
    UNION ALL
    SELECT due.session_key, due.available_at_ms, 0
    FROM (
        SELECT b.session_key, b.available_at_ms FROM lash_batches AS b
        WHERE b.available_at_ms > 0 AND b.available_at_ms <= (SELECT now_ms FROM clock)
        ORDER BY b.available_at_ms
        LIMIT 10000
    ) AS due
    UNION ALL
    SELECT parked.session_key, CASE WHEN parked.paused_until_ms > 0 THEN parked.paused_until_ms END, 0
    FROM (
        SELECT l.session_key, l.paused_until_ms FROM lash_session_leases AS l
        WHERE l.waiting_for IS NOT NULL AND l.paused_until_ms <= (SELECT now_ms FROM clock)
        ORDER BY l.paused_until_ms
        LIMIT 10000
    ) AS parked
    UNION ALL
    SELECT woken.session_key, (SELECT now_ms FROM clock), 1
    FROM (SELECT k.session_key FROM lash_session_wakes AS k LIMIT 10000) AS woken
),
ready_sessions (session_key, since_ms) AS (
    SELECT w.session_key, MIN(w.since_ms)
    FROM waiting AS w
    JOIN lash_session_leases AS l ON l.session_key = w.session_key
    WHERE (l.token IS NULL OR l.expires_at_ms <= (SELECT now_ms FROM clock))
        AND CASE
            WHEN w.is_woken THEN l.waiting_for IS NOT NULL
            ELSE l.paused_until_ms IS NULL OR l.paused_until_ms <= (SELECT now_ms FROM clock)
        END
    GROUP BY w.session_key
),
-- A process that is bound to its owner counts until its first claim: afterwards no other worker may run it.
ready_processes (process_key, since_ms) AS (
    SELECT found.process_key, MAX(found.ready_at_ms, p.created_at_ms)
    FROM (
        SELECT l.process_key, l.ready_at_ms, l.fencing
        FROM (
            SELECT l.process_key, l.ready_at_ms, l.fencing FROM lash_process_leases AS l
            WHERE l.ready_at_ms IS NOT NULL AND l.token IS NULL AND l.ready_at_ms <= (SELECT now_ms FROM clock)
            ORDER BY l.ready_at_ms
            LIMIT 10000
        ) AS l
        UNION ALL
        SELECT l.process_key, l.ready_at_ms, l.fencing
        FROM (
            SELECT l.process_key, l.ready_at_ms, l.fencing FROM lash_process_leases AS l
            WHERE l.ready_at_ms IS NOT NULL AND l.token IS NOT NULL
                AND l.expires_at_ms <= (SELECT now_ms FROM clock)
            ORDER BY l.expires_at_ms
            LIMIT 10000
        ) AS l
    ) AS found
    JOIN lash_processes AS p ON p.process_key = found.process_key
    WHERE p.recovery <> 'owner_bound' OR found.fencing = 0
),
held_sessions AS (
    SELECT l.session_key FROM lash_session_leases AS l
    WHERE l.process IS NOT NULL AND l.expires_at_ms > (SELECT now_ms FROM clock)
    UNION ALL
    SELECT l.session_key FROM lash_session_leases AS l
    WHERE l.token IS NOT NULL AND l.process IS NULL AND l.expires_at_ms > (SELECT now_ms FROM clock)
),
held_processes AS (
    SELECT l.process_key FROM lash_process_leases AS l
    WHERE l.ready_at_ms IS NOT NULL AND l.token IS NOT NULL AND l.expires_at_ms > (SELECT now_ms FROM clock)
),
-- The next moment at which something becomes ready without a write; that of a timer may have passed.
moments (at_ms) AS (
    SELECT MIN(b.available_at_ms) FROM lash_batches AS b
    WHERE b.available_at_ms > 0 AND b.available_at_ms > (SELECT now_ms FROM clock)
    UNION ALL
    SELECT MIN(l.ready_at_ms) FROM lash_process_leases AS l
    WHERE l.ready_at_ms > (SELECT now_ms FROM clock) AND l.token IS NULL
    UNION ALL
    SELECT MIN(l.paused_until_ms) FROM lash_session_leases AS l
    WHERE l.paused_until_ms > (SELECT now_ms FROM clock)
    UNION ALL
    SELECT MIN(s.next_fire_ms) FROM lash_schedules AS s WHERE s.next_fire_ms IS NOT NULL
    UNION ALL
    SELECT MIN(w.deadline_ms) FROM lash_waits AS w WHERE w.resolution IS NULL AND w.deadline_ms IS NOT NULL
    UNION ALL
    SELECT MIN(c.check_at_ms) FROM lash_limit_lines AS c WHERE c.check_at_ms IS NOT NULL
)
SELECT
    MIN((SELECT COUNT(*) FROM ready_sessions), 10000) AS sessions_ready,
    (SELECT COUNT(*) FROM (SELECT 1 FROM held_sessions LIMIT 10000)) AS sessions_running,
    MIN((SELECT COUNT(*) FROM ready_processes), 10000) AS processes_ready,
    (SELECT COUNT(*) FROM (SELECT 1 FROM held_processes LIMIT 10000)) AS processes_running,
    -- For how long the oldest of them has been ready; 0 if nothing is.
    MAX(
        0,
        COALESCE(
            c.now_ms - (
                SELECT MIN(o.since_ms)
                FROM (
                    SELECT MIN(s.since_ms) AS since_ms FROM ready_sessions AS s
                    UNION ALL
                    SELECT MIN(p.since_ms) FROM ready_processes AS p
                ) AS o
            ),
            0
        )
    ) / 1000.0 AS oldest_age_s,
    -- A moment after the year 9999 stands for never.
    (
        SELECT strftime('%Y-%m-%dT%H:%M:%fZ', MIN(m.at_ms) / 1000.0, 'unixepoch') FROM moments AS m
        WHERE m.at_ms < 253402300800000
    ) AS next_due_at
FROM clock AS c;
