-- name: event_known
-- The event of a replay key.
SELECT sequence, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
FROM lash_process_log
WHERE process_key = :process_key AND replay_key = :replay_key AND replay_key IS NOT NULL;

-- name: event_insert
-- Adds an event to a log, at the end of the feed.
INSERT INTO lash_process_events (
    seq, process_key, sequence, status, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
)
SELECT
    d.seq + 1, :process_key, :sequence, :status, :event_type, :replay_key, :payload_hash, :payload, :wake, :now_ms
FROM lash_process_change_end AS d;

-- name: event_after
-- The events after a number, in order.
SELECT sequence, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
FROM lash_process_log
WHERE process_key = :process_key AND sequence > :sequence
ORDER BY sequence
LIMIT :limit;

-- name: event_after_of_type
-- The events of one type after a number, in order.
SELECT sequence, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
FROM lash_process_log
WHERE process_key = :process_key AND event_type = :event_type AND sequence > :sequence
ORDER BY sequence
LIMIT :limit;

-- name: event_nth_of_type
-- The n-th event of one type, from 0.
SELECT sequence, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
FROM lash_process_log
WHERE process_key = :process_key AND event_type = :event_type
ORDER BY sequence
LIMIT 1 OFFSET :skip;

-- name: event_recent
-- The last events, the newest first.
SELECT sequence, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
FROM lash_process_log
WHERE process_key = :process_key
ORDER BY sequence DESC
LIMIT :limit;

-- name: event_count_through
-- How many events of a type there are up to a number.
SELECT COUNT(*)
FROM lash_process_log AS e
WHERE e.process_key = :process_key AND e.event_type = :event_type AND e.sequence <= :sequence;

-- name: event_last_sequences
-- The numbers of the last events of some processes.
SELECT p.process_id, p.last_sequence
FROM json_each(:process_ids) AS wanted
CROSS JOIN lash_processes AS p ON p.process_id = wanted.value;

-- name: event_insert_wake
-- Records a wake and its state.
INSERT INTO lash_wakes (process_key, sequence, target_session_id, batch_id, state)
VALUES (:process_key, :sequence, :target_session_id, :batch_id, :state);

-- name: event_wake
-- The wake of one event and its state.
SELECT w.sequence, COALESCE(e.event_type, p.end_type), COALESCE(e.wake, p.end_wake), w.state, w.batch_id
FROM lash_wakes AS w
JOIN lash_processes AS p ON p.process_key = w.process_key
LEFT JOIN lash_process_events AS e ON e.process_key = w.process_key AND e.sequence = w.sequence
WHERE w.process_key = :process_key AND w.sequence = :sequence;

-- name: event_open_wakes
-- The open wakes after a number.
SELECT w.sequence, COALESCE(e.event_type, p.end_type), COALESCE(e.wake, p.end_wake), w.state, w.batch_id
FROM lash_wakes AS w
JOIN lash_processes AS p ON p.process_key = w.process_key
LEFT JOIN lash_process_events AS e ON e.process_key = w.process_key AND e.sequence = w.sequence
WHERE w.process_key = :process_key AND w.sequence > :sequence AND w.state NOT IN ('acknowledged', 'merged')
ORDER BY w.sequence;

-- name: event_acknowledge_wake
-- Acknowledges one wake that is open.
UPDATE lash_wakes
SET state = 'acknowledged'
WHERE process_key = :process_key AND sequence = :sequence AND state NOT IN ('acknowledged', 'merged');

-- name: event_acknowledge_batch
-- Acknowledges the wake of a batch.
UPDATE lash_wakes SET state = 'acknowledged' WHERE batch_id = :batch_id AND state = 'queued';

-- name: event_undeliverable_wakes
-- The wakes whose session does not exist, after one of them.
SELECT p.process_id, w.sequence, COALESCE(e.event_type, p.end_type), COALESCE(e.wake, p.end_wake), w.state, w.batch_id
FROM lash_wakes AS w INDEXED BY lash_wakes_undeliverable
JOIN lash_processes AS p ON p.process_key = w.process_key
LEFT JOIN lash_process_events AS e ON e.process_key = w.process_key AND e.sequence = w.sequence
WHERE w.state = 'undeliverable' AND (p.process_id, w.sequence) > (:process_id, :sequence)
ORDER BY p.process_id, w.sequence
LIMIT :limit;

-- name: event_lose_session
-- Marks the queued wakes of a session as undeliverable.
UPDATE lash_wakes SET state = 'undeliverable' WHERE target_session_id = :session_id AND state = 'queued';

-- name: event_target_session
-- The target session of a wake, if it exists.
SELECT session_key FROM lash_sessions WHERE session_id = :session_id;

-- name: event_tail
-- The events of all processes after a position of the feed, or after the one to which it was pruned.
SELECT
    e.seq, p.process_id, e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms
FROM lash_process_events AS e
CROSS JOIN lash_processes AS p ON p.process_key = e.process_key
WHERE e.seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
UNION ALL
SELECT
    p.start_seq, p.process_id, p.start_sequence, 'process.started', p.start_replay_key, p.start_payload_hash,
    p.start_payload, NULL, p.created_at_ms
FROM lash_processes AS p INDEXED BY lash_processes_started_feed
WHERE p.start_seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
UNION ALL
SELECT
    p.end_seq, p.process_id, p.end_sequence, p.end_type, p.end_replay_key, p.end_payload_hash, p.end_payload,
    p.end_wake, p.ended_at_ms
FROM lash_processes AS p INDEXED BY lash_processes_ended_feed
WHERE p.end_seq > MAX(:after, COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0))
ORDER BY 1
LIMIT :limit;
