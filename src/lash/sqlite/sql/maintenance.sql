-- Every find query returns the same columns: session, key, revision, rows, bytes. A page starts after the last row of
-- the previous one.

-- name: maintenance_find_components
-- Ended components that no kept checkpoint contains.
SELECT c.session_key, c.key, c.first_revision, 1, 0
FROM lash_components AS c
WHERE (c.session_key, c.key, c.first_revision) > (:session_key, :key, :revision)
    AND c.last_revision IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM lash_checkpoints AS p
        WHERE p.session_key = c.session_key AND p.revision BETWEEN c.first_revision AND c.last_revision
    )
ORDER BY c.session_key, c.key, c.first_revision
LIMIT :limit;

-- name: maintenance_drop_components
-- Drops a component that maintenance_find_components found, unless a checkpoint needs it by now.
DELETE FROM lash_components
WHERE session_key = :session_key AND key = :key AND first_revision = :revision AND last_revision IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM lash_checkpoints AS p
        WHERE p.session_key = lash_components.session_key
            AND p.revision BETWEEN lash_components.first_revision AND lash_components.last_revision
    );

-- name: maintenance_find_blobs
-- Bytes that no component refers to.
SELECT b.session_key, b.hash, 0, 1, LENGTH(b.content)
FROM lash_blobs AS b
WHERE (b.session_key, b.hash, 0) > (:session_key, :key, :revision)
    AND NOT EXISTS (SELECT 1 FROM lash_components AS c WHERE c.session_key = b.session_key AND c.hash = b.hash)
ORDER BY b.session_key, b.hash
LIMIT :limit;

-- name: maintenance_drop_blobs
-- Drops bytes that maintenance_find_blobs found, unless a component refers to them by now.
DELETE FROM lash_blobs
WHERE session_key = :session_key AND hash = :key AND :revision = 0
    AND NOT EXISTS (
        SELECT 1 FROM lash_components AS c
        WHERE c.session_key = lash_blobs.session_key AND c.hash = lash_blobs.hash
    );

-- name: maintenance_find_graphs
-- Deleted sessions with rows of their graph left that no fork inherits.
WITH gone (session_key) AS (
    SELECT DISTINCT g.session_key
    FROM lash_segments AS g
    WHERE (g.session_key, '', 0) > (:session_key, :key, :revision)
        AND NOT EXISTS (SELECT 1 FROM lash_sessions AS s WHERE s.session_key = g.session_key)
),
rest (session_key, rows, bytes) AS (
    SELECT gone.session_key, COUNT(*), 0
    FROM gone
    JOIN lash_segments AS g ON g.session_key = gone.session_key
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_runs AS i WHERE i.owner_key = g.session_key AND i.segment = g.segment
    )
    GROUP BY gone.session_key
    UNION ALL
    SELECT gone.session_key, COUNT(*), SUM(LENGTH(n.body) + COALESCE(LENGTH(n.packed), 0))
    FROM gone
    JOIN lash_nodes AS n ON n.session_key = gone.session_key
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_runs AS i
        WHERE i.owner_key = n.session_key AND i.segment = n.segment AND i.floor < n.depth AND i.ceiling >= n.depth
    )
    GROUP BY gone.session_key
)
SELECT session_key, '', 0, SUM(rows), SUM(bytes)
FROM rest
GROUP BY session_key
ORDER BY session_key
LIMIT :limit;

-- name: maintenance_counts
-- What there is, by state: sessions in all, running, queued and waiting; batches in all and claimed; dead letters;
-- processes by status; open waits; live leases of processes. A session counts once, in the first state that applies.
WITH running (session_key) AS MATERIALIZED (
    SELECT l.session_key FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
    WHERE l.process IS NOT NULL AND l.expires_at_ms > :now_ms
    UNION ALL
    SELECT l.session_key FROM lash_session_leases AS l INDEXED BY lash_session_leases_unnamed
    WHERE l.token IS NOT NULL AND l.process IS NULL AND l.expires_at_ms > :now_ms
),
queued (session_key) AS MATERIALIZED (
    SELECT DISTINCT b.session_key FROM lash_batches AS b
),
parked (session_key) AS MATERIALIZED (
    SELECT l.session_key FROM lash_session_leases AS l INDEXED BY lash_session_leases_parked
    WHERE l.waiting_for IS NOT NULL AND l.paused_until_ms > :now_ms
),
waiting (session_key) AS MATERIALIZED (
    SELECT DISTINCT w.session_key FROM lash_waits AS w INDEXED BY lash_waits_session
    WHERE w.session_key IS NOT NULL AND w.resolution IS NULL
)
SELECT
    (SELECT COUNT(*) FROM lash_sessions),
    (SELECT COUNT(*) FROM running),
    (
        SELECT COUNT(*) FROM queued
        WHERE session_key NOT IN (SELECT session_key FROM running)
            AND session_key NOT IN (SELECT session_key FROM parked)
    ),
    (
        SELECT COUNT(*) FROM (SELECT session_key FROM waiting UNION SELECT session_key FROM parked)
        WHERE session_key NOT IN (SELECT session_key FROM running)
            AND (
                session_key IN (SELECT session_key FROM parked)
                OR session_key NOT IN (SELECT session_key FROM queued)
            )
    ),
    (SELECT COUNT(*) FROM lash_batches),
    (
        SELECT COUNT(*)
        FROM lash_batches AS b INDEXED BY lash_batches_claim
        CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
        WHERE b.claim_token IS NOT NULL AND b.claim_expires_at_ms > :now_ms AND l.token IS NOT NULL
            AND l.fencing = b.claim_lease_fencing
    ),
    (SELECT COUNT(*) FROM lash_dead_letters),
    (SELECT COUNT(*) FROM lash_processes WHERE status = 'running'),
    (SELECT COUNT(*) FROM lash_processes WHERE status = 'completed'),
    (SELECT COUNT(*) FROM lash_processes WHERE status = 'failed'),
    (SELECT COUNT(*) FROM lash_processes WHERE status = 'cancelled'),
    (SELECT COUNT(*) FROM lash_processes WHERE status = 'abandoned'),
    (SELECT COUNT(*) FROM lash_waits INDEXED BY lash_waits_pending WHERE resolution IS NULL),
    (SELECT COUNT(*) FROM lash_process_leases AS l WHERE l.token IS NOT NULL AND l.expires_at_ms > :now_ms);

-- name: maintenance_throughput
-- What happened in each interval: committed turns, dead letters, and ended processes by status; and the time.
SELECT 'now', :now_ms, 0
UNION ALL
SELECT 'turns', t.committed_at_ms / :interval_ms, COUNT(*)
FROM lash_turns AS t INDEXED BY lash_turns_committed
WHERE t.committed_at_ms >= :since_ms AND t.committed_at_ms < :until_ms
GROUP BY t.committed_at_ms / :interval_ms
UNION ALL
SELECT 'dead', d.died_at_ms / :interval_ms, COUNT(*)
FROM lash_dead_letters AS d INDEXED BY lash_dead_letters_died
WHERE d.died_at_ms >= :since_ms AND d.died_at_ms < :until_ms
GROUP BY d.died_at_ms / :interval_ms
UNION ALL
SELECT p.status, p.ended_at_ms / :interval_ms, COUNT(*)
FROM lash_processes AS p INDEXED BY lash_processes_ended
WHERE p.ended_at_ms >= :since_ms AND p.ended_at_ms < :until_ms AND p.ended_at_ms IS NOT NULL
GROUP BY p.status, p.ended_at_ms / :interval_ms;

-- name: maintenance_prunable
-- Counts the rows that were finished before a moment, by noun; the first column is the moment.
SELECT
    :before_ms,
    (SELECT COUNT(*) FROM lash_turns AS t WHERE t.committed_at_ms < :before_ms),
    (SELECT COUNT(*) FROM lash_source_keys AS k WHERE k.settled_at_ms < :before_ms),
    (
        SELECT COUNT(*)
        FROM lash_processes AS p
        WHERE p.ended_at_ms < :before_ms
            AND NOT EXISTS (SELECT 1 FROM lash_wakes AS w WHERE w.process_key = p.process_key AND w.state = 'queued')
    ),
    (
        SELECT COUNT(*)
        FROM lash_trigger_occurrences AS o
        WHERE o.occurred_at_ms < :before_ms
            AND NOT EXISTS (
                SELECT 1
                FROM lash_trigger_deliveries AS d
                JOIN lash_processes AS p ON p.process_id = d.process_id
                WHERE d.occurrence_key = o.occurrence_key AND p.status = 'running'
            )
    ),
    (SELECT COUNT(*) FROM lash_trigger_receipts AS r WHERE r.created_at_ms < :before_ms)
    + (SELECT COUNT(*) FROM lash_trigger_tombstones AS b WHERE b.deleted_at_ms < :before_ms),
    (SELECT COUNT(*) FROM lash_schedules AS d WHERE d.definition IS NULL AND d.updated_at_ms < :before_ms),
    (
        SELECT COUNT(*)
        FROM lash_waits AS w
        WHERE w.session_key IS NULL AND w.process_key IS NULL AND w.resolved_at_ms < :before_ms
    ),
    (SELECT COUNT(*) FROM lash_activity AS a WHERE a.created_at_ms < :before_ms),
    (SELECT COUNT(*) FROM lash_records AS r WHERE r.expires_at_ms < :before_ms),
    (SELECT COUNT(*) FROM lash_acts AS o WHERE o.at_ms < :before_ms);

-- name: maintenance_find_turns
-- Turns that were committed before a moment.
SELECT t.session_key, t.turn_id, 0, 1, 0
FROM lash_turns AS t
WHERE (t.session_key, t.turn_id, 0) > (:session_key, :key, :revision) AND t.committed_at_ms < :before_ms
ORDER BY t.session_key, t.turn_id
LIMIT :limit;

-- name: maintenance_drop_turns
-- Removes the record of a turn that maintenance_find_turns found.
DELETE FROM lash_turns WHERE session_key = :session_key AND turn_id = :key AND :revision = 0;

-- name: maintenance_find_source_keys
-- Source keys of batches that ended before a moment.
SELECT k.session_key, k.source_key, 0, 1, 0
FROM lash_source_keys AS k
WHERE (k.session_key, k.source_key, 0) > (:session_key, :key, :revision) AND k.settled_at_ms < :before_ms
ORDER BY k.session_key, k.source_key
LIMIT :limit;

-- name: maintenance_drop_source_keys
-- Frees a source key that maintenance_find_source_keys found.
DELETE FROM lash_source_keys
WHERE session_key = :session_key AND source_key = :key AND :revision = 0 AND settled_at_ms IS NOT NULL;

-- name: maintenance_find_activity
-- Activity that was written before a moment.
SELECT a.session_key, '', a.position, 1, LENGTH(a.body)
FROM lash_activity AS a
WHERE (a.session_key, '', a.position) > (:session_key, :key, :revision) AND a.created_at_ms < :before_ms
ORDER BY a.session_key, a.position
LIMIT :limit;

-- name: maintenance_drop_activity
-- Removes activity that maintenance_find_activity found, and everything older.
DELETE FROM lash_activity WHERE session_key = :session_key AND position <= :revision AND :key = '';

-- name: maintenance_table_rows
-- The rows of each table, counted up to a limit, and the highest row number, which an index gives at once.
SELECT 'lash_migrations', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_migrations LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_migrations)
UNION ALL
SELECT 'lash_sessions', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_sessions LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_sessions)
UNION ALL
SELECT 'lash_session_ids', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_session_ids LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_session_ids)
UNION ALL
SELECT 'lash_session_labels', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_session_labels LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_session_leases', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_session_leases LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_segments', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_segments LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_inherited', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_inherited LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_runs', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_runs LIMIT :limit)), (SELECT MAX(rowid) FROM lash_runs)
UNION ALL
SELECT 'lash_nodes', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_nodes LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_nodes)
UNION ALL
SELECT 'lash_frames', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_frames LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_frames)
UNION ALL
SELECT 'lash_checkpoints', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_checkpoints LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_checkpoints)
UNION ALL
SELECT 'lash_components', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_components LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_blobs', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_blobs LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_blobs)
UNION ALL
SELECT 'lash_usage', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_usage LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_usage_totals', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_usage_totals LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_turns', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_turns LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_turns)
UNION ALL
SELECT 'lash_batches', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_batches LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_batches)
UNION ALL
SELECT 'lash_source_keys', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_source_keys LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_source_keys)
UNION ALL
SELECT 'lash_dead_letters', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_dead_letters LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_dead_letters)
UNION ALL
SELECT 'lash_activity', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_activity LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_activity)
UNION ALL
SELECT 'lash_activity_tails', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_activity_tails LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_artifacts', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_artifacts LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_artifacts)
UNION ALL
SELECT 'lash_attachments', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_attachments LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_attachment_fences', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_attachment_fences LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_attachment_fences)
UNION ALL
SELECT 'lash_attachment_bytes', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_attachment_bytes LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_attachment_bytes)
UNION ALL
SELECT 'lash_processes', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_processes LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_processes)
UNION ALL
SELECT 'lash_process_leases', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_process_leases LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_process_leases)
UNION ALL
SELECT 'lash_process_changes', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_process_changes LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_process_changes)
UNION ALL
SELECT 'lash_process_change_floor', (SELECT COUNT(*) FROM lash_process_change_floor), NULL
UNION ALL
SELECT 'lash_process_change_epoch', (SELECT COUNT(*) FROM lash_process_change_epoch), NULL
UNION ALL
SELECT 'lash_process_tombstones', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_process_tombstones LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_process_tombstones)
UNION ALL
SELECT 'lash_process_events', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_process_events LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_process_events)
UNION ALL
SELECT 'lash_wakes', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_wakes LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_grants', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_grants LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_records', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_records LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_records)
UNION ALL
SELECT 'lash_effects', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_effects LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_effects)
UNION ALL
SELECT 'lash_effect_groups', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_effect_groups LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_effect_groups)
UNION ALL
SELECT 'lash_secrets', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_secrets LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_secrets)
UNION ALL
SELECT 'lash_waits', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_waits LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_wait_changes', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_wait_changes LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_wait_changes)
UNION ALL
SELECT 'lash_trigger_subscriptions', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_trigger_subscriptions LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_trigger_subscriptions)
UNION ALL
SELECT 'lash_trigger_tombstones', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_trigger_tombstones LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_trigger_receipts', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_trigger_receipts LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_trigger_occurrences', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_trigger_occurrences LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_trigger_occurrences)
UNION ALL
SELECT 'lash_trigger_deliveries', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_trigger_deliveries LIMIT :limit)),
    NULL
UNION ALL
SELECT 'lash_schedules', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_schedules LIMIT :limit)),
    (SELECT MAX(rowid) FROM lash_schedules)
UNION ALL
SELECT 'lash_workers', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_workers LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_limits', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_limits LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_limit_lines', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_limit_lines LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_limit_places', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_limit_places LIMIT :limit)), NULL
UNION ALL
SELECT 'lash_acts', (SELECT COUNT(*) FROM (SELECT 1 FROM lash_acts LIMIT :limit)), (SELECT MAX(rowid) FROM lash_acts);

-- name: maintenance_file_pages
-- The number of pages of the database, and the bytes of one page.
SELECT page_count, page_size FROM pragma_page_count(), pragma_page_size();

-- name: maintenance_table_bytes
-- The bytes of each table including indexes. It reads every page.
SELECT t.tbl_name, SUM(d.pgsize)
FROM sqlite_schema AS t
JOIN dbstat AS d ON d.name = t.name AND d.aggregate = TRUE
WHERE t.tbl_name LIKE 'lash\_%' ESCAPE '\'
GROUP BY t.tbl_name
ORDER BY t.tbl_name;

-- name: maintenance_find_environments
-- Environments that no process or trigger subscription refers to, last put before a moment.
SELECT 0, a.ref, 0, 1, length(a.content)
FROM lash_artifacts AS a
WHERE a.namespace = 'process_environment' AND (0, a.ref, 0) > (:session_key, :key, :revision)
    AND a.put_at_ms < :before_ms
    AND NOT EXISTS (SELECT 1 FROM lash_processes AS p WHERE p.environment_ref = a.ref)
    AND NOT EXISTS (SELECT 1 FROM lash_trigger_subscriptions AS t WHERE t.environment_ref = a.ref)
ORDER BY a.ref
LIMIT :limit;

-- name: maintenance_drop_environments
-- Removes an environment that maintenance_find_environments found, unless a process or a subscription refers to it by
-- now.
DELETE FROM lash_artifacts
WHERE namespace = 'process_environment' AND ref = :key AND :session_key = 0 AND :revision = 0
    AND NOT EXISTS (SELECT 1 FROM lash_processes AS p WHERE p.environment_ref = lash_artifacts.ref)
    AND NOT EXISTS (SELECT 1 FROM lash_trigger_subscriptions AS t WHERE t.environment_ref = lash_artifacts.ref);
