-- Contradictions between other rows, and rows whose owner is missing: a subject and a detail.

-- name: damage_byte_guards
-- Attachments without a byte guard, with one of another length, or committed while their bytes are being deleted.
SELECT s.session_id, a.attachment_id
FROM lash_attachments AS a
JOIN lash_sessions AS s ON s.session_key = a.session_key
LEFT JOIN lash_attachment_fences AS f ON f.attachment_id = a.attachment_id
WHERE f.attachment_id IS NULL OR f.byte_len <> a.byte_len
    OR (a.committed_at_ms IS NOT NULL AND f.phase = 'deleting')
ORDER BY s.session_id, a.attachment_id
LIMIT :limit;

-- name: damage_secrets
-- The secret of the waits, if there are waits and it is missing.
SELECT 'waits', ''
FROM (SELECT 1 AS one) AS single
WHERE EXISTS (SELECT 1 FROM lash_waits)
    AND NOT EXISTS (SELECT 1 FROM lash_secrets WHERE name = 'waits')
LIMIT :limit;

-- name: damage_epochs
-- The feed of changes, if it has no epoch.
SELECT 'feed', ''
FROM (SELECT 1 AS one) AS single
WHERE NOT EXISTS (SELECT 1 FROM lash_process_change_epoch)
LIMIT :limit;

-- name: damage_deliveries
-- Occurrences whose deliveries are not numbered without a gap, or name a process that never existed.
SELECT o.occurrence_id, CASE
    WHEN d.strangers > 0 THEN 'a delivery names an unknown process'
    ELSE 'a delivery is missing'
END
FROM lash_trigger_occurrences AS o
JOIN (
    SELECT
        e.occurrence_key, COUNT(*) AS number, MIN(e.position) AS low, MAX(e.position) AS high,
        COUNT(*) FILTER (
            WHERE e.state = 'started'
                AND NOT EXISTS (SELECT 1 FROM lash_processes AS p WHERE p.process_id = e.process_id)
                AND NOT EXISTS (SELECT 1 FROM lash_process_tombstones AS t WHERE t.process_id = e.process_id)
        ) AS strangers
    FROM lash_trigger_deliveries AS e
    GROUP BY e.occurrence_key
) AS d ON d.occurrence_key = o.occurrence_key
WHERE d.low <> 0 OR d.high <> d.number - 1 OR d.strangers > 0
ORDER BY o.occurrence_id
LIMIT :limit;

-- name: damage_owners
-- Triggers and schedules of a session that does not exist.
SELECT 'trigger ' || t.key, t.owner_session_id
FROM lash_trigger_subscriptions AS t
WHERE t.owner_session_id <> ''
    AND NOT EXISTS (SELECT 1 FROM lash_sessions AS s WHERE s.session_id = t.owner_session_id)
UNION ALL
SELECT 'schedule ' || d.key, d.owner_session_id
FROM lash_schedules AS d
WHERE d.owner_session_id <> '' AND d.definition IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM lash_sessions AS s WHERE s.session_id = d.owner_session_id)
LIMIT :limit;

-- name: damage_schedules
-- Schedules whose next tick is not after their last.
SELECT d.key, ''
FROM lash_schedules AS d
WHERE d.last_tick_ms >= d.next_tick_ms
ORDER BY d.key
LIMIT :limit;

-- name: damage_activity
-- Sessions with activity beyond the tail.
SELECT DISTINCT s.session_id, ''
FROM lash_activity AS a
JOIN lash_activity_tails AS t ON t.session_key = a.session_key
JOIN lash_sessions AS s ON s.session_key = a.session_key
WHERE a.position > t.position OR a.written_bytes > t.written_bytes OR a.revision > s.revision
LIMIT :limit;

-- name: damage_orphans
-- Tables with rows whose owner does not exist, and how many.
SELECT o.name, CAST(COUNT(*) AS TEXT)
FROM (
    SELECT 'lash_session_wakes' AS name FROM lash_session_wakes AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_session_leases' AS name FROM lash_session_leases AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_inherited' AS name FROM lash_inherited AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_frames' AS name FROM lash_frames AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_checkpoints' AS name FROM lash_checkpoints AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_components' AS name FROM lash_components AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_blobs' AS name FROM lash_blobs AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_usage' AS name FROM lash_usage AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_usage_totals' AS name FROM lash_usage_totals AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_turns' AS name FROM lash_turns AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_batches' AS name FROM lash_batches AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_source_keys' AS name FROM lash_source_keys AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_dead_letters' AS name FROM lash_dead_letters AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_attachments' AS name FROM lash_attachments AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_activity_tails' AS name FROM lash_activity_tails AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_records' AS name FROM lash_records AS c
    WHERE c.session_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_effects' AS name FROM lash_effects AS c
    WHERE c.session_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_effect_groups' AS name FROM lash_effect_groups AS c
    WHERE c.session_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_waits' AS name FROM lash_waits AS c
    WHERE c.session_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_process_events' AS name FROM lash_process_events AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_wakes' AS name FROM lash_wakes AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_grants' AS name FROM lash_grants AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_process_leases' AS name FROM lash_process_leases AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_effects' AS name FROM lash_effects AS c
    WHERE c.process_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_effect_groups' AS name FROM lash_effect_groups AS c
    WHERE c.process_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_waits' AS name FROM lash_waits AS c
    WHERE c.process_key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_limit_places' AS name FROM lash_limit_places AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_sessions AS o WHERE o.session_key = c.session_key
    ) AND NOT EXISTS (
        SELECT 1 FROM lash_processes AS o WHERE o.process_key = c.process_key
    )
    UNION ALL
    SELECT 'lash_activity' AS name FROM lash_activity AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_activity_tails AS o WHERE o.session_key = c.session_key
    )
    UNION ALL
    SELECT 'lash_trigger_deliveries' AS name FROM lash_trigger_deliveries AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_trigger_occurrences AS o WHERE o.occurrence_key = c.occurrence_key
    )
    UNION ALL
    SELECT 'lash_attachment_bytes' AS name FROM lash_attachment_bytes AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_attachment_fences AS o WHERE o.attachment_id = c.attachment_id
    )
    UNION ALL
    SELECT 'lash_nodes' AS name FROM lash_nodes AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_segments AS o WHERE o.session_key = c.session_key AND o.segment = c.segment
    )
    UNION ALL
    SELECT 'lash_runs' AS name FROM lash_runs AS c
    WHERE NOT EXISTS (
        SELECT 1 FROM lash_segments AS o WHERE o.session_key = c.owner_key AND o.segment = c.segment
    )
    UNION ALL
    SELECT 'lash_runs' AS name FROM lash_runs AS c
    WHERE NOT EXISTS (SELECT 1 FROM lash_inherited AS i WHERE i.run_key = c.run_key)
        AND NOT EXISTS (SELECT 1 FROM lash_runs AS o WHERE o.next_key = c.run_key)
) AS o
GROUP BY o.name
ORDER BY o.name
LIMIT :limit;
