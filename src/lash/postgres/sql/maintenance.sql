-- Every find query returns the same columns: session, key, revision, rows, bytes. A page starts after the last row of
-- the previous one ($1 to $3).

-- name: maintenance_find_components
-- Ended components that no kept checkpoint contains.
SELECT c.session_key, c.key, c.first_revision, 1, 0
FROM :"schema".lash_components AS c
WHERE (c.session_key, c.key, c.first_revision) > ($1::bigint, $2::text, $3::bigint)
    AND c.last_revision IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_checkpoints AS p
        WHERE p.session_key = c.session_key AND p.revision BETWEEN c.first_revision AND c.last_revision
    )
ORDER BY c.session_key, c.key, c.first_revision
LIMIT $4::bigint;

-- name: maintenance_drop_components
-- Drops components that maintenance_find_components found, unless a checkpoint needs them by now.
DELETE FROM :"schema".lash_components AS c
USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS found (session_key, key, revision)
WHERE c.session_key = found.session_key AND c.key = found.key AND c.first_revision = found.revision
    AND c.last_revision IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_checkpoints AS p
        WHERE p.session_key = c.session_key AND p.revision BETWEEN c.first_revision AND c.last_revision
    );

-- name: maintenance_find_blobs
-- Bytes that no component refers to.
SELECT b.session_key, b.hash, 0, 1, length(b.content)
FROM :"schema".lash_blobs AS b
WHERE (b.session_key, b.hash, 0) > ($1::bigint, $2::text, $3::bigint)
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_components AS c WHERE c.session_key = b.session_key AND c.hash = b.hash
    )
ORDER BY b.session_key, b.hash
LIMIT $4::bigint;

-- name: maintenance_hold_blobs
-- Blocks commits briefly, so that none of them refers to bytes that are about to be dropped.
LOCK TABLE :"schema".lash_blobs IN SHARE ROW EXCLUSIVE MODE;

-- name: maintenance_drop_blobs
-- Drops bytes that maintenance_find_blobs found, unless a component refers to them by now.
DELETE FROM :"schema".lash_blobs AS b
USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS found (session_key, hash, revision)
WHERE b.session_key = found.session_key AND b.hash = found.hash
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_components AS c WHERE c.session_key = b.session_key AND c.hash = b.hash
    );

-- name: maintenance_find_graphs
-- Deleted sessions with rows of their graph left that no fork inherits.
WITH gone AS (
    SELECT DISTINCT g.session_key
    FROM :"schema".lash_segments AS g
    WHERE (g.session_key, '', 0) > ($1::bigint, $2::text, $3::bigint)
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_sessions AS s WHERE s.session_key = g.session_key)
),
rest AS (
    SELECT g.session_key, 0 AS size
    FROM gone
    JOIN :"schema".lash_segments AS g ON g.session_key = gone.session_key
    WHERE NOT EXISTS (
        SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = g.session_key AND i.segment = g.segment
    )
    UNION ALL
    SELECT n.session_key, octet_length(n.body) + coalesce(octet_length(n.packed), 0)
    FROM gone
    JOIN :"schema".lash_nodes AS n ON n.session_key = gone.session_key
    WHERE NOT EXISTS (
        SELECT 1 FROM :"schema".lash_runs AS i
        WHERE i.owner_key = n.session_key AND i.segment = n.segment AND i.floor < n.depth AND i.ceiling >= n.depth
    )
)
SELECT session_key, '', 0, count(*), sum(size)
FROM rest
GROUP BY session_key
ORDER BY session_key
LIMIT $4::bigint;

-- name: maintenance_counts
-- What there is, by state: sessions in all, running, queued and waiting; batches in all and claimed; dead letters;
-- processes by status; open waits; live leases of processes. A session counts once, in the first state that applies.
WITH clock AS MATERIALIZED (SELECT :"schema".lash_now_ms() AS now_ms),
running (session_key) AS MATERIALIZED (
    SELECT l.session_key FROM clock
    JOIN :"schema".lash_session_leases AS l ON l.process IS NOT NULL AND l.expires_at_ms > clock.now_ms
    UNION ALL
    SELECT l.session_key FROM clock
    JOIN :"schema".lash_session_leases AS l
        ON l.token IS NOT NULL AND l.process IS NULL AND l.expires_at_ms > clock.now_ms
),
queued (session_key) AS MATERIALIZED (SELECT DISTINCT b.session_key FROM :"schema".lash_batches AS b),
parked (session_key) AS MATERIALIZED (
    SELECT l.session_key FROM clock
    JOIN :"schema".lash_session_leases AS l ON l.waiting_for IS NOT NULL AND l.paused_until_ms > clock.now_ms
),
waiting (session_key) AS MATERIALIZED (
    SELECT w.session_key FROM :"schema".lash_waits AS w
    WHERE w.session_key IS NOT NULL AND w.resolution IS NULL
    UNION
    SELECT p.session_key FROM parked AS p
),
processes (status, number) AS MATERIALIZED (
    SELECT p.status, count(*) FROM :"schema".lash_processes AS p GROUP BY p.status
)
SELECT
    (SELECT count(*) FROM :"schema".lash_sessions),
    (SELECT count(*) FROM running),
    (
        SELECT count(*) FROM queued AS q
        WHERE NOT EXISTS (SELECT 1 FROM running AS r WHERE r.session_key = q.session_key)
            AND NOT EXISTS (SELECT 1 FROM parked AS p WHERE p.session_key = q.session_key)
    ),
    (
        SELECT count(*) FROM waiting AS w
        WHERE NOT EXISTS (SELECT 1 FROM running AS r WHERE r.session_key = w.session_key)
            AND (
                EXISTS (SELECT 1 FROM parked AS p WHERE p.session_key = w.session_key)
                OR NOT EXISTS (SELECT 1 FROM queued AS q WHERE q.session_key = w.session_key)
            )
    ),
    (SELECT count(*) FROM :"schema".lash_batches),
    (
        SELECT count(*)
        FROM clock
        CROSS JOIN :"schema".lash_batches AS b
        JOIN :"schema".lash_session_leases AS l ON l.session_key = b.session_key AND l.token IS NOT NULL
            AND l.fencing = b.claim_lease_fencing
        WHERE b.claim_token IS NOT NULL AND b.claim_expires_at_ms > clock.now_ms
    ),
    (SELECT count(*) FROM :"schema".lash_dead_letters),
    coalesce((SELECT p.number FROM processes AS p WHERE p.status = 'running'), 0),
    coalesce((SELECT p.number FROM processes AS p WHERE p.status = 'completed'), 0),
    coalesce((SELECT p.number FROM processes AS p WHERE p.status = 'failed'), 0),
    coalesce((SELECT p.number FROM processes AS p WHERE p.status = 'cancelled'), 0),
    coalesce((SELECT p.number FROM processes AS p WHERE p.status = 'abandoned'), 0),
    (SELECT count(*) FROM :"schema".lash_waits AS w WHERE w.resolution IS NULL),
    (
        SELECT count(*) FROM clock
        JOIN :"schema".lash_process_leases AS l ON l.token IS NOT NULL AND l.expires_at_ms > clock.now_ms
    );

-- name: maintenance_throughput
-- What happened in each interval ($1) from $2 on and before $3: committed turns, dead letters, and ended processes by
-- status; and the time.
SELECT 'now', :"schema".lash_now_ms(), 0::bigint
UNION ALL
SELECT 'turns', t.committed_at_ms / $1::bigint, count(*)
FROM :"schema".lash_turns AS t
WHERE t.committed_at_ms >= $2::bigint AND t.committed_at_ms < $3::bigint
GROUP BY t.committed_at_ms / $1::bigint
UNION ALL
SELECT 'dead', d.died_at_ms / $1::bigint, count(*)
FROM :"schema".lash_dead_letters AS d
WHERE d.died_at_ms >= $2::bigint AND d.died_at_ms < $3::bigint
GROUP BY d.died_at_ms / $1::bigint
UNION ALL
SELECT p.status, p.ended_at_ms / $1::bigint, count(*)
FROM :"schema".lash_processes AS p
WHERE p.ended_at_ms >= $2::bigint AND p.ended_at_ms < $3::bigint
GROUP BY p.status, p.ended_at_ms / $1::bigint;

-- name: maintenance_prunable
-- Counts the rows that were finished longer ago than $1, by noun; the first column is the moment.
SELECT
    clock.before_ms,
    (SELECT count(*) FROM :"schema".lash_turns AS t WHERE t.committed_at_ms < clock.before_ms),
    (SELECT count(*) FROM :"schema".lash_source_keys AS k WHERE k.settled_at_ms < clock.before_ms),
    (
        SELECT count(*)
        FROM :"schema".lash_processes AS p
        WHERE p.ended_at_ms < clock.before_ms
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_wakes AS w WHERE w.process_key = p.process_key AND w.state = 'queued'
            )
    ),
    (
        SELECT count(*)
        FROM :"schema".lash_trigger_occurrences AS o
        WHERE o.occurred_at_ms < clock.before_ms
            AND NOT EXISTS (
                SELECT 1
                FROM :"schema".lash_trigger_deliveries AS d
                JOIN :"schema".lash_processes AS p ON p.process_id = d.process_id
                WHERE d.occurrence_key = o.occurrence_key AND p.status = 'running'
            )
    ),
    (SELECT count(*) FROM :"schema".lash_trigger_receipts AS r WHERE r.created_at_ms < clock.before_ms)
    + (SELECT count(*) FROM :"schema".lash_trigger_tombstones AS b WHERE b.deleted_at_ms < clock.before_ms),
    (
        SELECT count(*)
        FROM :"schema".lash_schedules AS d
        WHERE d.definition IS NULL AND d.updated_at_ms < clock.before_ms
    ),
    (
        SELECT count(*)
        FROM :"schema".lash_waits AS w
        WHERE w.session_key IS NULL AND w.process_key IS NULL AND w.resolved_at_ms < clock.before_ms
    ),
    (SELECT count(*) FROM :"schema".lash_activity AS a WHERE a.created_at_ms < clock.before_ms),
    (SELECT count(*) FROM :"schema".lash_records AS r WHERE r.expires_at_ms < clock.before_ms),
    (SELECT count(*) FROM :"schema".lash_acts AS o WHERE o.at_ms < clock.before_ms)
FROM (SELECT :"schema".lash_now_ms() - $1::bigint AS before_ms) AS clock;

-- name: maintenance_find_turns
-- Turns that were committed longer ago than $5.
SELECT t.session_key, t.turn_id, 0, 1, 0
FROM :"schema".lash_turns AS t
WHERE (t.session_key, t.turn_id, 0) > ($1::bigint, $2::text, $3::bigint)
    AND t.committed_at_ms < (SELECT :"schema".lash_now_ms()) - $5::bigint
ORDER BY t.session_key, t.turn_id
LIMIT $4::bigint;

-- name: maintenance_drop_turns
-- Removes the records of turns that maintenance_find_turns found.
DELETE FROM :"schema".lash_turns AS t
USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS found (session_key, turn_id, revision)
WHERE t.session_key = found.session_key AND t.turn_id = found.turn_id;

-- name: maintenance_find_source_keys
-- Source keys of batches that ended longer ago than $5.
SELECT k.session_key, k.source_key, 0, 1, 0
FROM :"schema".lash_source_keys AS k
WHERE (k.session_key, k.source_key, 0) > ($1::bigint, $2::text, $3::bigint)
    AND k.settled_at_ms < (SELECT :"schema".lash_now_ms()) - $5::bigint
ORDER BY k.session_key, k.source_key
LIMIT $4::bigint;

-- name: maintenance_drop_source_keys
-- Frees source keys that maintenance_find_source_keys found.
DELETE FROM :"schema".lash_source_keys AS k
USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS found (session_key, source_key, revision)
WHERE k.session_key = found.session_key AND k.source_key = found.source_key AND k.settled_at_ms IS NOT NULL;

-- name: maintenance_find_activity
-- Activity that was written longer ago than $5.
SELECT a.session_key, '', a.position, 1, octet_length(a.body)
FROM :"schema".lash_activity AS a
WHERE (a.session_key, '', a.position) > ($1::bigint, $2::text, $3::bigint)
    AND a.created_at_ms < (SELECT :"schema".lash_now_ms()) - $5::bigint
ORDER BY a.session_key, a.position
LIMIT $4::bigint;

-- name: maintenance_drop_activity
-- Removes activity that maintenance_find_activity found, and everything older. It takes the lock of appends, which
-- remove the same rows.
WITH old AS (
    SELECT found.session_key, max(found.position) AS position
    FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS found (session_key, key, position)
    GROUP BY found.session_key
),
held AS MATERIALIZED (
    SELECT t.session_key, old.position
    FROM :"schema".lash_activity_tails AS t
    JOIN old ON old.session_key = t.session_key
    ORDER BY t.session_key
    FOR NO KEY UPDATE OF t
)
DELETE FROM :"schema".lash_activity AS a
USING held
WHERE a.session_key = held.session_key AND a.position <= held.position;

-- name: maintenance_table_sizes
-- The rows of each table as the server last estimated them, and its bytes including indexes and TOAST.
SELECT
    t.relname::text,
    CASE WHEN t.reltuples < 0 THEN coalesce(pg_stat_get_live_tuples(t.oid), 0) ELSE t.reltuples END::bigint,
    pg_total_relation_size(t.oid),
    false
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = $1::text AND t.relkind IN ('r', 'p') AND t.relname LIKE 'lash\_%'
ORDER BY t.relname;

-- name: maintenance_find_environments
-- Environments that no process or trigger subscription refers to, last put longer ago than $5.
SELECT 0, a.ref, 0, 1, length(a.content)
FROM :"schema".lash_artifacts AS a
WHERE a.namespace = 'process_environment' AND (0, a.ref, 0) > ($1::bigint, $2::text, $3::bigint)
    AND a.put_at_ms < (SELECT :"schema".lash_now_ms()) - $5::bigint
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_processes AS p WHERE p.environment_ref = a.ref)
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_trigger_subscriptions AS t WHERE t.environment_ref = a.ref)
ORDER BY a.ref
LIMIT $4::bigint;

-- name: maintenance_drop_environments
-- Removes environments that maintenance_find_environments found, unless a process or a subscription refers to them by
-- now.
DELETE FROM :"schema".lash_artifacts AS a
USING unnest($1::bigint[], $2::text[], $3::bigint[]) AS found (session_key, ref, revision)
WHERE a.namespace = 'process_environment' AND a.ref = found.ref
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_processes AS p WHERE p.environment_ref = a.ref)
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_trigger_subscriptions AS t WHERE t.environment_ref = a.ref);
