-- fragment: queue_all_columns
-- The columns of a batch in a list of all sessions, and what its session waits for. The input of a parked turn is ready
-- when the turn is.
SELECT
    b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms, b.enqueued_at_ms,
    b.claim_count, b.failure_count, b.priority, b.payloads, s.session_id,
    CASE
        WHEN b.claim_token IS NOT NULL AND b.claim_expires_at_ms > :now_ms AND l.token IS NOT NULL
            AND l.fencing = b.claim_lease_fencing THEN 'claimed'
        WHEN b.available_at_ms = 9223372036854775807 AND l.waiting_for IS NOT NULL
        THEN CASE WHEN l.paused_until_ms > :now_ms THEN 'parked' ELSE 'ready' END
        WHEN b.available_at_ms > :now_ms THEN 'delayed'
        ELSE 'ready'
    END AS state, l.waiting_for, l.paused_until_ms

-- fragment: queue_all_rest
-- The position, the state, and the order of the queue.
    AND b.seq > :after AND (:state IS NULL OR state = :state)
ORDER BY b.seq
LIMIT :limit;

-- name: queue_all
-- The queued batches of all sessions, in order.
-- include: queue_all_columns
FROM lash_batches AS b
CROSS JOIN lash_sessions AS s ON s.session_key = b.session_key
CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
WHERE true
-- include: queue_all_rest

-- name: queue_all_prefix
-- queue_all, of the sessions with ids from :first on and before :end, sorted.
-- include: queue_all_columns
FROM lash_sessions AS s
CROSS JOIN lash_batches AS b INDEXED BY lash_batches_id ON b.session_key = s.session_key
CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
WHERE s.session_id >= :first AND s.session_id < :end
-- include: queue_all_rest

-- name: queue_all_delayed
-- queue_all, of the batches that are delayed or parked, sorted.
-- include: queue_all_columns
FROM lash_batches AS b INDEXED BY lash_batches_due
CROSS JOIN lash_sessions AS s ON s.session_key = b.session_key
CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
WHERE b.available_at_ms > 0 AND b.available_at_ms > :now_ms
-- include: queue_all_rest

-- name: queue_all_claimed
-- queue_all, of the batches that a live claim holds, sorted.
-- include: queue_all_columns
FROM lash_batches AS b INDEXED BY lash_batches_claim
CROSS JOIN lash_sessions AS s ON s.session_key = b.session_key
CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
WHERE b.claim_token IS NOT NULL
-- include: queue_all_rest
