-- name: emit_occurrence
-- Records an occurrence and returns its key; no row if it is recorded already.
INSERT INTO lash_trigger_occurrences (occurrence_id, request_hash, request, report, occurred_at_ms)
VALUES (:occurrence_id, :request_hash, :request, '', :now_ms)
ON CONFLICT (occurrence_id) DO NOTHING
RETURNING occurrence_key;

-- name: emit_stored
-- One occurrence.
SELECT occurrence_key, occurrence_id, request_hash, request, report, occurred_at_ms
FROM lash_trigger_occurrences
WHERE occurrence_id = :occurrence_id;

-- name: emit_match
-- The subscriptions that match an occurrence, in the order in which they were created.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM lash_trigger_subscriptions AS t INDEXED BY lash_trigger_subscriptions_match
WHERE t.source_type = :source_type AND t.source_key = :source_key AND t.enabled = 1
ORDER BY t.subscription_key;

-- name: emit_processes
-- Registers the processes whose ids are free, and returns their ids.
INSERT INTO lash_processes (
    process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
    wake_session_id, environment_ref, status, waiting, projection, last_sequence, created_at_ms, updated_at_ms,
    registered_seq
)
SELECT
    e.value ->> '$[0]', e.value ->> '$[1]', e.value ->> '$[2]', e.value ->> '$[3]', e.value ->> '$[4]',
    e.value ->> '$[5]', e.value ->> '$[6]', e.value ->> '$[7]', e.value ->> '$[8]', e.value ->> '$[9]',
    'running', 0, :projection, 0, :now_ms, :now_ms, (SELECT d.seq FROM lash_process_change_end AS d) + e.key + 1
FROM json_each(:processes) AS e
WHERE TRUE
ORDER BY e.key
ON CONFLICT (process_id) DO NOTHING
RETURNING process_id;

-- name: emit_leases
-- Adds lease rows of new processes, above the fencing numbers of pruned processes with the same ids.
INSERT INTO lash_process_leases (process_key, fencing, ready_at_ms)
SELECT p.process_key, COALESCE(t.fencing, 0), p.created_at_ms
FROM json_each(:process_ids) AS e
JOIN lash_processes AS p ON p.process_id = e.value
LEFT JOIN lash_process_tombstones AS t ON t.process_id = e.value;

-- name: emit_forget_tombstones
-- Removes the tombstones of ids that were registered again.
DELETE FROM lash_process_tombstones WHERE process_id IN (SELECT e.value FROM json_each(:process_ids) AS e);

-- name: emit_registered
-- The registration hashes of the processes with these ids.
SELECT p.process_id, p.registration_hash
FROM json_each(:process_ids) AS e
JOIN lash_processes AS p ON p.process_id = e.value;

-- name: emit_grants
-- Grants the processes to the sessions that they wake.
INSERT INTO lash_grants (session_id, frame_id, process_key, kind, label)
SELECT e.value ->> '$[0]', '', p.process_key, e.value ->> '$[2]', e.value ->> '$[3]'
FROM json_each(:grants) AS e
JOIN lash_processes AS p ON p.process_id = e.value ->> '$[1]'
WHERE TRUE
ON CONFLICT (session_id, frame_id, process_key) DO NOTHING;

-- name: emit_deliveries
-- Records the deliveries of an occurrence.
INSERT INTO lash_trigger_deliveries (
    occurrence_key, position, subscription_id, owner_session_id, key, process_id, state, reason, attempts
)
SELECT
    :occurrence_key, e.key, e.value ->> '$[0]', e.value ->> '$[1]', e.value ->> '$[2]', e.value ->> '$[3]',
    e.value ->> '$[4]', e.value ->> '$[5]', 1
FROM json_each(:deliveries) AS e;

-- name: emit_report
-- Stores the report, which every repeated emission of the occurrence returns.
UPDATE lash_trigger_occurrences SET report = :report WHERE occurrence_key = :occurrence_key;

-- name: emit_all_deliveries
-- All deliveries of an occurrence.
SELECT subscription_id, owner_session_id, key, process_id, state, reason, attempts
FROM lash_trigger_deliveries
WHERE occurrence_key = :occurrence_key
ORDER BY position;

-- name: emit_delivery
-- One delivery of an occurrence.
SELECT subscription_id, owner_session_id, key, process_id, state, reason, attempts
FROM lash_trigger_deliveries
WHERE occurrence_key = :occurrence_key AND subscription_id = :subscription_id;

-- name: emit_subscription
-- One subscription by its id.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM lash_trigger_subscriptions AS t
WHERE t.subscription_id = :subscription_id;

-- name: emit_record_attempt
-- Records another attempt at a delivery.
UPDATE lash_trigger_deliveries
SET state = :state, reason = :reason, attempts = :attempts
WHERE occurrence_key = :occurrence_key AND subscription_id = :subscription_id;

-- name: emit_prune
-- Removes the oldest occurrences from before a moment without a running process.
DELETE FROM lash_trigger_occurrences
WHERE occurrence_key IN (
    SELECT o.occurrence_key
    FROM lash_trigger_occurrences AS o
    WHERE o.occurred_at_ms < :before_ms
        AND NOT EXISTS (
            SELECT 1
            FROM lash_trigger_deliveries AS d
            JOIN lash_processes AS p ON p.process_id = d.process_id
            WHERE d.occurrence_key = o.occurrence_key AND p.status = 'running'
        )
    ORDER BY o.occurred_at_ms, o.occurrence_key
    LIMIT :limit
)
RETURNING occurred_at_ms, occurrence_key, occurrence_id;
