-- name: lease_row
-- The lease row of one session.
SELECT
    l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms, l.paused_until_ms,
    l.wake_seq, l.waiting_for
FROM lash_sessions AS s
JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = :session_id;

-- name: lease_of
-- The lease row of one session, by its key.
SELECT fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms
FROM lash_session_leases
WHERE session_key = :session_key;

-- name: lease_acquire
-- Gives the lease to a new holder under the next fencing number; this ends a pause, and makes a parked turn ready.
UPDATE lash_session_leases
SET fencing = :fencing, owner_id = :owner_id, incarnation_id = :incarnation_id, process = :process, token = :token,
    claimed_at_ms = :now_ms, expires_at_ms = :expires_at_ms,
    paused_until_ms = CASE WHEN waiting_for IS NOT NULL THEN 0 END
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id);

-- name: lease_extend
-- Moves the expiry of the lease that this token holds.
UPDATE lash_session_leases
SET expires_at_ms = :expires_at_ms
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND token = :token AND fencing = :fencing;

-- name: lease_release
-- Frees the lease if the fence still holds it, expired or not, and pauses the session unless the pause is zero; the
-- fencing number stays, and a turn that was parked before the lease is ready.
UPDATE lash_session_leases
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    paused_until_ms = CASE
        WHEN :pause_ms > 0 THEN :now_ms + :pause_ms
        WHEN waiting_for IS NOT NULL THEN 0
    END
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND owner_id = :owner_id AND incarnation_id = :incarnation_id AND token = :token AND fencing = :fencing;

-- name: lease_live
-- The live leases of sessions and processes, or of one kind, after a position, in the order in which they were acquired.
WITH live (kind, key, fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms) AS (
    SELECT
        'session', l.session_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
    FROM lash_session_leases AS l INDEXED BY lash_session_leases_holder
    WHERE :wanted IS NOT 'process' AND l.process IS NOT NULL AND l.expires_at_ms > :now_ms
    UNION ALL
    SELECT
        'session', l.session_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
    FROM lash_session_leases AS l INDEXED BY lash_session_leases_unnamed
    WHERE :wanted IS NOT 'process' AND l.token IS NOT NULL AND l.process IS NULL AND l.expires_at_ms > :now_ms
    UNION ALL
    SELECT
        'process', l.process_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
    FROM lash_process_leases AS l INDEXED BY lash_process_leases_lapsed
    WHERE :wanted IS NOT 'session' AND l.ready_at_ms IS NOT NULL AND l.token IS NOT NULL AND l.expires_at_ms > :now_ms
)
SELECT
    live.kind,
    CASE live.kind
        WHEN 'session' THEN (SELECT s.session_id FROM lash_sessions AS s WHERE s.session_key = live.key)
        ELSE (SELECT p.process_id FROM lash_processes AS p WHERE p.process_key = live.key)
    END,
    live.key, live.fencing, live.owner_id, live.incarnation_id, live.process, live.token, live.claimed_at_ms,
    live.expires_at_ms
FROM live
WHERE (live.claimed_at_ms, live.kind, live.key) > (:claimed_at_ms, :kind, :key)
ORDER BY live.claimed_at_ms, live.kind, live.key
LIMIT :limit;

-- name: lease_park
-- Frees the lease that this token holds, and parks the turn until a moment, unless waiting_for is NULL.
UPDATE lash_session_leases
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    paused_until_ms = CASE WHEN :waiting_for IS NOT NULL THEN :until_ms END, waiting_for = :waiting_for
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND token = :token AND fencing = :fencing;

-- name: lease_park_input
-- Frees the batches that were claimed under a lease: the input of a parked turn is off the work list, other input is
-- queued again, and its attempt does not count.
UPDATE lash_batches
SET available_at_ms = CASE WHEN :parked THEN 9223372036854775807 ELSE available_at_ms END,
    claim_count = CASE WHEN :parked THEN claim_count ELSE MAX(claim_count - 1, 0) END,
    claim_id = NULL, claim_token = NULL, claim_lease_fencing = NULL, claim_expires_at_ms = NULL
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND claim_token IS NOT NULL AND claim_lease_fencing = :fencing;

-- name: lease_unpark
-- Ends the parking of a turn that is ready.
UPDATE lash_session_leases
SET waiting_for = NULL, paused_until_ms = NULL
WHERE session_key = :session_key AND waiting_for IS NOT NULL AND paused_until_ms <= :now_ms;

-- name: lease_unpark_input
-- Puts the input of a parked turn back into its place in the queue; the claim that follows counts no further attempt.
UPDATE lash_batches
SET available_at_ms = 0, claim_count = MAX(claim_count - 1, 0)
WHERE session_key = :session_key AND available_at_ms = 9223372036854775807;
