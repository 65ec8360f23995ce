-- name: worker_beat
-- Registers a worker, or shows that it lives. What an operator decided about it stays.
INSERT INTO lash_workers (
    worker_id, owner_id, host, pid, process, boot_id, version, started_at_ms, seen_at_ms, beat_ms, session_slots, process_slots,
    free_sessions, free_processes, agents, processes, labels, channel, status
)
VALUES (
    :worker_id, :owner_id, :host, :pid, :process, :boot_id, :version, :now_ms, :now_ms, :beat_ms, :session_slots, :process_slots,
    :free_sessions, :free_processes, :agents, :processes, :labels, :channel, :status
)
ON CONFLICT (worker_id) DO UPDATE SET
    seen_at_ms = excluded.seen_at_ms, beat_ms = excluded.beat_ms, session_slots = excluded.session_slots,
    free_sessions = excluded.free_sessions, free_processes = excluded.free_processes,
    channel = excluded.channel;

-- name: worker_remove_gone
-- Removes the workers that missed too many beats.
DELETE FROM lash_workers WHERE worker_id <> :worker_id AND seen_at_ms + :gone_beats * beat_ms < :now_ms;

-- name: worker_fleet
-- How many other workers live, how many active ones of them come before this one, its status, and the other active
-- ones that take the same sessions. Workers that take all work come first, then the order of their start decides.
SELECT
    (
        SELECT COUNT(*) FROM lash_workers AS o
        WHERE o.worker_id <> w.worker_id AND o.seen_at_ms + :late_beats * o.beat_ms >= :now_ms
    ),
    (
        SELECT COUNT(*) FROM lash_workers AS o
        WHERE o.status = 'active' AND o.seen_at_ms + :late_beats * o.beat_ms >= :now_ms
            AND (
                o.agents IS NOT NULL OR o.processes IS NOT NULL OR o.labels IS NOT NULL OR o.session_slots = 0
                OR o.process_slots = 0, o.started_at_ms, o.worker_id
            ) < (
                w.agents IS NOT NULL OR w.processes IS NOT NULL OR w.labels IS NOT NULL OR w.session_slots = 0
                OR w.process_slots = 0, w.started_at_ms, w.worker_id
            )
    ),
    w.status,
    (
        SELECT json_group_array(o.worker_id) FROM lash_workers AS o
        WHERE o.worker_id <> w.worker_id AND o.seen_at_ms + :late_beats * o.beat_ms >= :now_ms
            AND o.status = 'active' AND o.session_slots > 0 AND o.agents IS w.agents AND o.labels IS w.labels
    )
FROM lash_workers AS w
WHERE w.worker_id = :worker_id;

-- name: worker_neighbours
-- The other workers on the same boot of a machine.
SELECT owner_id, worker_id, process
FROM lash_workers
WHERE worker_id <> :worker_id AND boot_id = :boot_id
ORDER BY started_at_ms, worker_id;

-- name: worker_all
-- All workers in the order of their start.
SELECT
    worker_id, owner_id, host, pid, process, boot_id, version, started_at_ms, seen_at_ms, beat_ms, session_slots, process_slots,
    free_sessions, free_processes, agents, processes, labels, channel, status
FROM lash_workers
ORDER BY started_at_ms, worker_id;

-- name: worker_holding
-- The sessions and the processes that workers run.
SELECT worker_id, is_process, id
FROM (
    SELECT
        w.worker_id, 0 AS is_process, s.session_id AS id,
        row_number() OVER (PARTITION BY w.worker_id ORDER BY s.session_id) AS place
    FROM json_each(:worker_ids) AS wanted
    CROSS JOIN lash_workers AS w ON w.worker_id = wanted.value
    CROSS JOIN lash_session_leases AS l INDEXED BY lash_session_leases_holder
        ON l.process IS NOT NULL AND l.process ->> '$.boot_id' = w.boot_id AND l.incarnation_id = w.worker_id
    CROSS JOIN lash_sessions AS s ON s.session_key = l.session_key
    WHERE l.expires_at_ms > :now_ms
    UNION ALL
    SELECT
        w.worker_id, 1, p.process_id,
        row_number() OVER (PARTITION BY w.worker_id ORDER BY p.process_id)
    FROM json_each(:worker_ids) AS wanted
    CROSS JOIN lash_workers AS w ON w.worker_id = wanted.value
    CROSS JOIN lash_process_leases AS l INDEXED BY lash_process_leases_holder
        ON l.process IS NOT NULL AND l.process ->> '$.boot_id' = w.boot_id AND l.incarnation_id = w.worker_id
    CROSS JOIN lash_processes AS p ON p.process_key = l.process_key
    WHERE l.expires_at_ms > :now_ms AND l.runnable
)
WHERE place <= :limit
ORDER BY worker_id, is_process, id;

-- name: worker_drain
-- Lets a worker take nothing new, and returns where it can be woken to learn that.
UPDATE lash_workers SET status = 'draining' WHERE worker_id = :worker_id RETURNING channel;

-- name: worker_leave
-- Removes a worker.
DELETE FROM lash_workers WHERE worker_id = :worker_id;

-- name: worker_suspect
-- Lets nothing more be assigned to workers until their next beat.
UPDATE lash_workers SET free_sessions = 0, free_processes = 0
WHERE worker_id IN (SELECT value FROM json_each(:worker_ids));

-- name: worker_ready_sessions
-- The given sessions that have ready work or a parked turn, and no pause, each with the agent of that work, the holder
-- of its live lease and, if wanted, its labels as a JSON object. Work that the holder has claimed already does not count.
SELECT
    s.session_id,
    COALESCE(
        (
            SELECT b.agent FROM lash_batches AS b INDEXED BY lash_batches_delayed
            WHERE b.session_key = s.session_key AND b.available_at_ms > 0 AND b.available_at_ms = 9223372036854775807
                AND l.waiting_for IS NOT NULL
            LIMIT 1
        ),
        (
            SELECT b.agent FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.session_key = s.session_key AND b.available_at_ms = 0
            LIMIT 1
        ),
        s.agent
    ),
    CASE WHEN l.token IS NOT NULL AND l.expires_at_ms > :now_ms THEN l.incarnation_id END,
    CASE WHEN :with_labels THEN (
        SELECT json_group_object(x.key, x.value) FROM lash_session_labels AS x WHERE x.session_key = s.session_key
    ) END
FROM json_each(:session_ids) AS wanted
CROSS JOIN lash_sessions AS s ON s.session_id = wanted.value
CROSS JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE (l.paused_until_ms IS NULL OR l.paused_until_ms <= :now_ms)
    AND (
        l.waiting_for IS NOT NULL
        OR EXISTS (
            SELECT 1 FROM lash_batches AS b INDEXED BY lash_batches_ready
            WHERE b.session_key = s.session_key AND b.available_at_ms = 0
                AND (
                    b.claim_token IS NULL OR b.claim_expires_at_ms <= :now_ms OR l.token IS NULL
                    OR l.expires_at_ms <= :now_ms OR b.claim_lease_fencing <> l.fencing
                )
        )
    );

-- name: worker_ready_processes
-- The given processes that are ready, each with its name, the holder of its live lease and, if wanted, the labels of its
-- session.
SELECT
    p.process_id, p.label, CASE WHEN l.token IS NOT NULL AND l.expires_at_ms > :now_ms THEN l.incarnation_id END,
    CASE WHEN :with_labels THEN (
        SELECT json_group_object(x.key, x.value)
        FROM lash_sessions AS s
        CROSS JOIN lash_session_labels AS x ON x.session_key = s.session_key
        WHERE s.session_id = p.wake_session_id
    ) END
FROM json_each(:process_ids) AS wanted
CROSS JOIN lash_processes AS p ON p.process_id = wanted.value
CROSS JOIN lash_process_leases AS l ON l.process_key = p.process_key
WHERE l.ready_at_ms <= :now_ms;

-- name: worker_full
-- Assigns no further session to a worker whose slots ran out, until its next beat.
UPDATE lash_workers SET free_sessions = 0 WHERE worker_id = :worker_id AND free_sessions > 0;
