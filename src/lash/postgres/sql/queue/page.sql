-- fragment: queue_all_columns
-- The columns of a batch in a list of all sessions, and what its session waits for.
WITH clock AS MATERIALIZED (SELECT :"schema".lash_now_ms() AS now_ms)
SELECT
    b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms, b.enqueued_at_ms,
    b.claim_count, b.failure_count, b.priority, b.payloads, s.session_id, state.name,
    l.waiting_for, l.paused_until_ms
FROM clock

-- fragment: queue_all_state
-- The state of a batch. The input of a parked turn is ready when the turn is.
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN b.claim_token IS NOT NULL AND b.claim_expires_at_ms > clock.now_ms AND l.token IS NOT NULL
            AND l.fencing = b.claim_lease_fencing THEN 'claimed'
        WHEN b.available_at_ms = 9223372036854775807 AND l.waiting_for IS NOT NULL
        THEN CASE WHEN l.paused_until_ms > clock.now_ms THEN 'parked' ELSE 'ready' END
        WHEN b.available_at_ms > clock.now_ms THEN 'delayed'
        ELSE 'ready'
    END AS name
) AS state

-- fragment: queue_all_sorted
-- The position, the state, and the order of the queue; what was found is sorted.
    AND b.seq > $1::bigint AND ($2::text IS NULL OR state.name = $2::text)
ORDER BY b.seq
LIMIT $3::bigint;

-- name: queue_all
-- The queued batches of all sessions after position $1, in state $2 unless it is NULL, in order, at most $3.
-- include: queue_all_columns
CROSS JOIN :"schema".lash_batches AS b
JOIN :"schema".lash_sessions AS s ON s.session_key = b.session_key
JOIN :"schema".lash_session_leases AS l ON l.session_key = b.session_key
-- include: queue_all_state
WHERE b.seq + 0 > $1::bigint AND ($2::text IS NULL OR state.name = $2::text)
ORDER BY b.seq + 0
LIMIT $3::bigint;

-- name: queue_all_prefix
-- queue_all, of the sessions with ids from $4 on and before $5, sorted.
-- include: queue_all_columns
CROSS JOIN :"schema".lash_sessions AS s
JOIN :"schema".lash_batches AS b ON b.session_key = s.session_key
JOIN :"schema".lash_session_leases AS l ON l.session_key = b.session_key
-- include: queue_all_state
WHERE s.session_id COLLATE "C" >= $4::text AND s.session_id COLLATE "C" < $5::text
-- include: queue_all_sorted

-- name: queue_all_delayed
-- queue_all, of the batches that are delayed or parked, sorted.
-- include: queue_all_columns
JOIN :"schema".lash_batches AS b ON b.available_at_ms > 0 AND b.available_at_ms > clock.now_ms
JOIN :"schema".lash_sessions AS s ON s.session_key = b.session_key
JOIN :"schema".lash_session_leases AS l ON l.session_key = b.session_key
-- include: queue_all_state
WHERE true
-- include: queue_all_sorted

-- name: queue_all_claimed
-- queue_all, of the batches that a live claim holds, sorted. The index of claims has them in this order; joined without
-- it, the planner may go through the queue of each session.
-- include: queue_all_columns
CROSS JOIN (
    SELECT * FROM :"schema".lash_batches AS c
    WHERE c.claim_token IS NOT NULL
    ORDER BY c.session_key, c.claim_token
    OFFSET 0
) AS b
JOIN :"schema".lash_sessions AS s ON s.session_key = b.session_key
JOIN :"schema".lash_session_leases AS l ON l.session_key = b.session_key
-- include: queue_all_state
WHERE true
-- include: queue_all_sorted
