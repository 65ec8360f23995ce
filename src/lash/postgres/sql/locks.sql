-- name: lock_holders
-- The transactions that hold locks on the tables of a schema and block others, or have been idle for a second; the
-- oldest first. The state of another role's connection is visible to members of pg_read_all_stats only.
WITH tables AS MATERIALIZED (
    SELECT c.oid
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relkind = 'r'
),
holders AS MATERIALIZED (
    SELECT DISTINCT l.pid
    FROM pg_locks AS l
    JOIN tables ON tables.oid = l.relation
    WHERE l.locktype = 'relation' AND l.granted AND l.mode <> 'AccessShareLock' AND l.pid <> pg_backend_pid()
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
),
waits AS (
    SELECT blocker.pid, count(*) AS number
    FROM (SELECT DISTINCT l.pid FROM pg_locks AS l WHERE NOT l.granted) AS waiter
    CROSS JOIN LATERAL unnest(pg_blocking_pids(waiter.pid)) AS blocker (pid)
    GROUP BY blocker.pid
)
SELECT
    a.pid::bigint,
    coalesce(a.application_name, ''),
    coalesce(host(a.client_addr), ''),
    coalesce(a.state, 'state not visible'),
    coalesce(extract(epoch FROM clock_timestamp() - a.state_change), 0)::float8,
    coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8,
    coalesce(waits.number, 0)
FROM holders
JOIN pg_stat_activity AS a ON a.pid = holders.pid
LEFT JOIN waits ON waits.pid = holders.pid
WHERE waits.pid IS NOT NULL
    OR (a.state LIKE 'idle in transaction%' AND a.state_change < clock_timestamp() - interval '1 second')
ORDER BY a.xact_start;
