-- name: dead_letter_of_claim
-- The batches (of a JSON array of ids) that died under a claim.
SELECT batch_id
FROM lash_dead_letters INDEXED BY lash_dead_letters_id
WHERE session_key = :session_key AND claim_token = :claim_token
    AND batch_id IN (SELECT value FROM json_each(:batch_ids));

-- name: dead_letter_bury
-- Copies the batches that a claim holds to the dead letters, in the order of the queue.
INSERT INTO lash_dead_letters (
    session_key, batch_id, seq, source_key, lane, delivery, slot, merge_key, enqueued_at_ms, claim_count,
    failure_count, priority, payloads, agent, names_agent,
    claim_token, reason, error, died_at_ms
)
SELECT
    session_key, batch_id, seq, source_key, lane, delivery, slot, merge_key, enqueued_at_ms, claim_count,
    failure_count, priority, payloads, agent, names_agent,
    claim_token, :reason, :error, :now_ms
FROM lash_batches
WHERE session_key = :session_key AND claim_token = :claim_token
ORDER BY seq;

-- name: dead_letter_revive
-- Copies a dead letter to the end of the queue, as if it had never been claimed.
INSERT INTO lash_batches (
    session_key, batch_id, source_key, lane, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, priority,
    payloads, agent, names_agent
)
SELECT
    session_key, batch_id, source_key, lane, delivery, slot, merge_key, 0, enqueued_at_ms, priority, payloads, agent,
    names_agent
FROM lash_dead_letters
WHERE session_key = :session_key AND batch_id = :batch_id
RETURNING
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads;

-- name: dead_letter_remove
-- Removes a dead letter, and returns the source key of its batch.
DELETE FROM lash_dead_letters
WHERE session_key = :session_key AND batch_id = :batch_id
RETURNING source_key;

-- name: dead_letter_page
-- The dead letters of all sessions after a position, in the order in which they died.
SELECT
    d.place, s.session_id, d.seq, d.batch_id, d.source_key, d.delivery, d.slot, d.merge_key, d.enqueued_at_ms,
    d.claim_count, d.failure_count, d.priority, d.payloads, d.reason, d.error, d.died_at_ms
FROM lash_dead_letters AS d
CROSS JOIN lash_sessions AS s ON s.session_key = d.session_key
WHERE d.place > :after
ORDER BY d.place
LIMIT :limit;

-- name: dead_letter_page_of_session
-- The dead letters of one session after a position, in the order in which they died.
SELECT
    d.place, s.session_id, d.seq, d.batch_id, d.source_key, d.delivery, d.slot, d.merge_key, d.enqueued_at_ms,
    d.claim_count, d.failure_count, d.priority, d.payloads, d.reason, d.error, d.died_at_ms
FROM lash_dead_letters AS d INDEXED BY lash_dead_letters_session
CROSS JOIN lash_sessions AS s ON s.session_key = d.session_key
WHERE d.session_key = :session_key AND d.place > :after
ORDER BY d.place
LIMIT :limit;

-- name: dead_letter_page_prefix
-- The dead letters after a position of the sessions in a range of ids, in the order in which they died.
SELECT
    d.place, s.session_id, d.seq, d.batch_id, d.source_key, d.delivery, d.slot, d.merge_key, d.enqueued_at_ms,
    d.claim_count, d.failure_count, d.priority, d.payloads, d.reason, d.error, d.died_at_ms
FROM lash_sessions AS s
CROSS JOIN lash_dead_letters AS d ON d.session_key = s.session_key
WHERE s.session_id >= :first AND s.session_id < :end AND d.place > :after
ORDER BY d.place
LIMIT :limit;
