-- Contradictions between the rows of processes and effects, which no write of lash makes: a subject and a detail.

-- name: damage_event_numbers
-- Processes whose events are not numbered from 1 to their count.
SELECT p.process_id, CAST(p.last_sequence AS TEXT)
FROM :"schema".lash_processes AS p
LEFT JOIN (
    SELECT process_key, count(*) AS number, min(sequence) AS low, max(sequence) AS high
    FROM :"schema".lash_process_log
    GROUP BY process_key
) AS e ON e.process_key = p.process_key
WHERE coalesce(e.number, 0) <> p.last_sequence OR coalesce(e.high, 0) <> p.last_sequence OR coalesce(e.low, 1) <> 1
ORDER BY p.process_id
LIMIT $1::bigint;

-- name: damage_process_leases
-- Processes without a lease row, or with one that contradicts their status.
SELECT p.process_id, CASE
    WHEN l.process_key IS NULL THEN 'it has no lease row'
    ELSE 'its lease row contradicts its status'
END
FROM :"schema".lash_processes AS p
LEFT JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
WHERE l.process_key IS NULL OR l.runnable <> (p.status = 'running' AND p.recovery <> 'external')
ORDER BY p.process_id
LIMIT $1::bigint;

-- name: damage_wakes
-- Events whose wake has no row, and wakes whose event is missing.
SELECT p.process_id, CAST(e.sequence AS TEXT)
FROM :"schema".lash_process_log AS e
JOIN :"schema".lash_processes AS p ON p.process_key = e.process_key
WHERE (e.wake IS NOT NULL) <> EXISTS (
        SELECT 1 FROM :"schema".lash_wakes AS w WHERE w.process_key = e.process_key AND w.sequence = e.sequence
    )
UNION ALL
SELECT p.process_id, CAST(w.sequence AS TEXT)
FROM :"schema".lash_wakes AS w
JOIN :"schema".lash_processes AS p ON p.process_key = w.process_key
WHERE NOT EXISTS (
        SELECT 1 FROM :"schema".lash_process_log AS e WHERE e.process_key = w.process_key AND e.sequence = w.sequence
    )
LIMIT $1::bigint;

-- name: damage_queued_wakes
-- Wakes that are queued without a batch or a dead letter.
SELECT p.process_id, CAST(w.sequence AS TEXT)
FROM :"schema".lash_wakes AS w
JOIN :"schema".lash_processes AS p ON p.process_key = w.process_key
WHERE w.state = 'queued'
    AND NOT EXISTS (
        SELECT 1
        FROM :"schema".lash_sessions AS s
        JOIN :"schema".lash_batches AS b ON b.session_key = s.session_key
        WHERE s.session_id = w.target_session_id AND b.batch_id = w.batch_id
    )
    AND NOT EXISTS (
        SELECT 1
        FROM :"schema".lash_sessions AS s
        JOIN :"schema".lash_dead_letters AS d ON d.session_key = s.session_key
        WHERE s.session_id = w.target_session_id AND d.batch_id = w.batch_id
    )
ORDER BY p.process_id, w.sequence
LIMIT $1::bigint;

-- name: damage_changes
-- Processes whose registration and events are not in the feed of changes in their order.
SELECT p.process_id, ''
FROM :"schema".lash_processes AS p
WHERE EXISTS (
        SELECT 1
        FROM :"schema".lash_process_log AS e
        JOIN :"schema".lash_process_log AS n ON n.process_key = e.process_key AND n.sequence = e.sequence + 1
        WHERE e.process_key = p.process_key AND n.seq <= e.seq
    )
    OR p.registered_seq > 0 AND EXISTS (
        SELECT 1 FROM :"schema".lash_process_log AS e WHERE e.process_key = p.process_key AND e.seq <= p.registered_seq
    )
ORDER BY p.process_id
LIMIT $1::bigint;

-- name: damage_tombstones
-- Processes and triggers that exist beside their tombstone.
SELECT 'process ' || p.process_id, ''
FROM :"schema".lash_processes AS p
JOIN :"schema".lash_process_tombstones AS t ON t.process_id = p.process_id
UNION ALL
SELECT 'trigger ' || s.key, ''
FROM :"schema".lash_trigger_subscriptions AS s
JOIN :"schema".lash_trigger_tombstones AS t ON t.owner_session_id = s.owner_session_id AND t.key = s.key
LIMIT $1::bigint;

-- name: damage_effect_groups
-- Groups that count other effects than they have, and effects whose group is missing.
WITH had AS (
    SELECT
        scope_id, group_key, count(*) AS members, count(settled_rank) AS settled,
        coalesce(max(settled_rank), 0) AS high
    FROM :"schema".lash_effects
    WHERE group_key IS NOT NULL
    GROUP BY scope_id, group_key
)
SELECT g.scope_id, g.group_key
FROM :"schema".lash_effect_groups AS g
LEFT JOIN had AS h ON h.scope_id = g.scope_id AND h.group_key = g.group_key
WHERE g.members <> coalesce(h.members, 0) OR g.settled <> coalesce(h.settled, 0) OR g.settled <> coalesce(h.high, 0)
UNION ALL
SELECT h.scope_id, h.group_key
FROM had AS h
WHERE NOT EXISTS (
        SELECT 1 FROM :"schema".lash_effect_groups AS g WHERE g.scope_id = h.scope_id AND g.group_key = h.group_key
    )
LIMIT $1::bigint;

-- name: damage_scopes
-- Effects, groups and waits whose scope is not that of the session or process that owns them.
WITH owned AS (
    SELECT 'effect' AS kind, scope_id, replay_key AS name, session_key, process_key FROM :"schema".lash_effects
    UNION ALL
    SELECT 'group', scope_id, group_key, session_key, process_key FROM :"schema".lash_effect_groups
    UNION ALL
    SELECT 'wait', scope_id, key_id, session_key, process_key FROM :"schema".lash_waits
)
SELECT o.kind || ' ' || o.name, o.scope_id
FROM owned AS o
LEFT JOIN :"schema".lash_sessions AS s ON s.session_key = o.session_key
LEFT JOIN :"schema".lash_processes AS p ON p.process_key = o.process_key
WHERE CASE
        WHEN o.session_key IS NOT NULL
            THEN substr(o.scope_id, 1, length(s.session_id) + length(CAST(length(s.session_id) AS TEXT)) + 7)
                <> 'turn:' || CAST(length(s.session_id) AS TEXT) || ':' || s.session_id || ':'
        WHEN o.process_key IS NOT NULL THEN o.scope_id <> 'process:' || p.process_id
        ELSE substr(o.scope_id, 1, 18) <> 'runtime_operation:'
    END
LIMIT $1::bigint;
