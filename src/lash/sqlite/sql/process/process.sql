-- fragment: process_columns
-- The columns of a process row.
SELECT
    p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
    p.last_sequence, p.created_at_ms, p.updated_at_ms

-- fragment: process_state
-- The facts about the state of a process of a list: one array of JSON, NULL unless they are wanted.
-- A failure is followed by a pause; a later sleep has a step of its own that is due at the same time.
    , CASE WHEN :with_state AND p.status = 'running' THEN (
        SELECT json_array(
            :now_ms, l.token IS NOT NULL AND l.expires_at_ms > :now_ms, l.runnable, l.ready_at_ms,
            (
                SELECT w.identity
                FROM lash_waits AS w INDEXED BY lash_waits_process
                WHERE w.process_key = p.process_key AND w.resolution IS NULL
                ORDER BY w.created_at_ms, w.key_id
                LIMIT 1
            ),
            l.ready_at_ms IS NOT NULL
            AND EXISTS (
                SELECT 1 FROM lash_process_events AS e
                WHERE e.process_key = p.process_key AND e.sequence = p.last_sequence
                    AND e.event_type = 'process.attempt_failed'
            )
            AND NOT EXISTS (
                SELECT 1 FROM lash_effects AS e INDEXED BY lash_effects_process
                WHERE e.process_key = p.process_key AND e.due_at_ms = l.ready_at_ms
            )
        )
        FROM lash_process_leases AS l
        WHERE l.process_key = p.process_key
    ) END

-- fragment: process_filters
-- The filters of a list, with its order and limit.
    AND (:process_id IS NULL OR p.process_id = :process_id)
    AND (:definition_hash IS NULL OR p.definition_hash = :definition_hash)
    AND (:parent_process_id IS NULL OR p.parent_process_id = :parent_process_id)
    AND (:wake_session_id IS NULL OR p.wake_session_id = :wake_session_id)
    AND (:originator_session_id IS NULL OR p.originator_session_id = :originator_session_id)
    AND (:label IS NULL OR p.label = :label)
    AND (:kind IS NULL OR p.kind = :kind)
    AND (:waiting IS NULL OR p.waiting = :waiting)
    AND (:parked IS NULL OR :parked = EXISTS (
        SELECT 1 FROM lash_process_leases AS l
        WHERE l.process_key = p.process_key AND l.runnable AND l.token IS NULL
            AND (l.ready_at_ms IS NULL OR l.ready_at_ms > :now_ms)
    ))
    AND (:status IS NULL OR p.status = :status)
    AND (:created_after_ms IS NULL OR p.created_at_ms > :created_after_ms)
    AND (:created_before_ms IS NULL OR p.created_at_ms < :created_before_ms)
ORDER BY p.process_key DESC
LIMIT :limit;

-- name: process_row
-- One process.
-- include: process_columns
FROM lash_processes AS p
WHERE p.process_id = :process_id;

-- name: process_is_pruned
-- Whether a process of this id ended and was pruned.
SELECT EXISTS (SELECT 1 FROM lash_process_tombstones WHERE process_id = :process_id);

-- name: process_insert
-- Registers a process, at the end of the feed; does nothing if its id is taken.
INSERT INTO lash_processes (
    process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
    parent_process_id, wake_session_id, environment_ref, status, waiting, projection, last_sequence, created_at_ms,
    updated_at_ms, registered_seq
)
SELECT
    :process_id, :registration_hash, :registration, :recovery, :kind, :label, :definition_hash, :originator_session_id,
    :parent_process_id, :wake_session_id, :environment_ref, 'running', 0, :projection, 0, :now_ms, :now_ms, d.seq + 1
FROM lash_process_change_end AS d
WHERE TRUE
ON CONFLICT (process_id) DO NOTHING;

-- name: process_insert_lease
-- Gives a new process its lease row, above the fencing number of a pruned one of the same id. It is ready to run unless
-- it is external.
INSERT INTO lash_process_leases (process_key, fencing, runnable, ready_at_ms)
SELECT
    p.process_key,
    COALESCE((SELECT t.fencing FROM lash_process_tombstones AS t WHERE t.process_id = :process_id), 0),
    :runnable,
    CASE WHEN :runnable THEN :now_ms END
FROM lash_processes AS p
WHERE p.process_id = :process_id;

-- name: process_forget_tombstone
-- Removes the tombstone of an id that was registered again.
DELETE FROM lash_process_tombstones WHERE process_id = :process_id;

-- name: process_project
-- Writes the projection of a process.
UPDATE lash_processes
SET projection = :projection, status = :status, waiting = :waiting, last_sequence = :sequence,
    updated_at_ms = :now_ms, ended_at_ms = CASE WHEN :status = 'running' THEN NULL ELSE COALESCE(ended_at_ms, :now_ms) END
WHERE process_key = :process_key AND last_sequence = :sequence - 1;

-- name: process_start
-- Writes the event with which a process starts, and its projection, into its row.
UPDATE lash_processes
SET projection = :projection, last_sequence = :sequence, updated_at_ms = :now_ms,
    start_seq = (SELECT d.seq + 1 FROM lash_process_change_end AS d), start_sequence = :sequence,
    start_replay_key = :replay_key, start_payload_hash = :payload_hash, start_payload = :payload
WHERE process_key = :process_key AND last_sequence = :sequence - 1;

-- name: process_end
-- Writes the event with which a process ends, and its projection, into its row.
UPDATE lash_processes
SET projection = :projection, status = :status, waiting = 0, last_sequence = :sequence, updated_at_ms = :now_ms,
    ended_at_ms = :now_ms, end_seq = (SELECT d.seq + 1 FROM lash_process_change_end AS d), end_sequence = :sequence,
    end_type = :event_type, end_replay_key = :replay_key, end_payload_hash = :payload_hash, end_payload = :payload,
    end_wake = :wake
WHERE process_key = :process_key AND last_sequence = :sequence - 1;

-- name: process_last_change
-- A number that grows with each change of a process and with each wait that is resolved or revoked.
SELECT
    (SELECT d.seq FROM lash_process_change_end AS d)
    + COALESCE((SELECT number FROM lash_wait_changes WHERE id = 1), 0);

-- name: process_ids
-- Ids in a range, in their order.
SELECT process_id
FROM lash_processes
WHERE process_id >= :first AND process_id < :end
ORDER BY process_id
LIMIT :limit;

-- name: process_runnable
-- Running processes that workers can run and that no live lease holds.
-- include: process_columns
FROM lash_processes AS p INDEXED BY lash_processes_runnable
JOIN lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.status = 'running' AND p.recovery <> 'external' AND p.process_id > :after
    AND (l.token IS NULL OR l.expires_at_ms <= :now_ms)
ORDER BY p.process_id
LIMIT :limit;

-- name: process_versions
-- How many processes have not ended, and how many of them continued as new, by definition; with one of each.
SELECT q.process_id, q.registration, found.number, found.continued, found.oldest_at_ms
FROM (
    SELECT
        MAX(p.process_key) AS process_key,
        COUNT(*) AS number,
        COUNT(*) FILTER (
            WHERE EXISTS (
                SELECT 1 FROM lash_process_events AS e
                WHERE e.process_key = p.process_key AND e.event_type = 'process.continued'
            )
        ) AS continued,
        MIN(p.created_at_ms) AS oldest_at_ms
    FROM lash_processes AS p INDEXED BY lash_processes_runnable
    WHERE p.status = 'running' AND p.recovery <> 'external'
    GROUP BY p.kind, p.label, p.definition_hash
) AS found
JOIN lash_processes AS q ON q.process_key = found.process_key;

-- name: process_prunable
-- Processes that ended before a moment and whose last change every reader of the feed has seen.
SELECT p.process_key, p.process_id, p.status, l.fencing
FROM lash_processes AS p INDEXED BY lash_processes_ended
JOIN lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.ended_at_ms < :ended_before_ms
    AND NOT EXISTS (
        SELECT 1 FROM lash_process_events AS e
        WHERE e.process_key = p.process_key AND e.seq > :through
    )
    AND NOT EXISTS (
        SELECT 1 FROM lash_process_changes AS c
        WHERE c.process_id = p.process_id AND c.seq > :through
    )
    AND p.registered_seq <= :through AND COALESCE(p.start_seq, 0) <= :through AND COALESCE(p.end_seq, 0) <= :through
    AND NOT EXISTS (SELECT 1 FROM lash_wakes AS w WHERE w.process_key = p.process_key AND w.state = 'queued')
ORDER BY p.ended_at_ms
LIMIT :limit;

-- name: process_bury
-- Leaves a tombstone.
INSERT INTO lash_process_tombstones (process_id, status, fencing, pruned_at_ms)
VALUES (:process_id, :status, :fencing, :now_ms);

-- name: process_delete
-- Removes a process and, by cascade, everything that it owns.
DELETE FROM lash_processes WHERE process_key = :process_key;

-- name: process_page_all
-- Processes that match the given filters, the newest first.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p
WHERE p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_id
-- process_page_all, read by id.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p
WHERE p.process_id = :process_id
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_definition
-- process_page_all, read by definition.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_definition
WHERE p.definition_hash = :definition_hash
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_parent
-- process_page_all, read by the process that started them.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_parent
WHERE p.parent_process_id = :parent_process_id
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_wake
-- process_page_all, read by the session to wake.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_wake
WHERE p.wake_session_id = :wake_session_id
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_originator
-- process_page_all, read by the session that started them.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_originator
WHERE p.originator_session_id = :originator_session_id
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_label
-- process_page_all, read by label.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_label
WHERE p.label = :label
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_kind
-- process_page_all, read by kind.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_kind
WHERE p.kind = :kind
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_waiting
-- process_page_all, read by the waiting flag.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_waiting
WHERE p.waiting = 1
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters

-- name: process_page_status
-- process_page_all, read by status.
-- include: process_columns
-- include: process_state
FROM lash_processes AS p INDEXED BY lash_processes_status
WHERE p.status = :status
    AND p.process_key < COALESCE(:before, 9223372036854775807)
-- include: process_filters
