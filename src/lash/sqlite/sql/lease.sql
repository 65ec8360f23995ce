-- name: lease_row
-- The lease row of one session.
SELECT
    l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms, l.paused_until_ms
FROM lash_sessions AS s
JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = :session_id;

-- name: lease_of
-- The lease row of one session, by its key.
SELECT fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms
FROM lash_session_leases
WHERE session_key = :session_key;

-- name: lease_acquire
-- Gives the lease to a new holder under the next fencing number; this ends a pause.
UPDATE lash_session_leases
SET fencing = :fencing, owner_id = :owner_id, incarnation_id = :incarnation_id, process = :process, token = :token,
    claimed_at_ms = :now_ms, expires_at_ms = :expires_at_ms, paused_until_ms = NULL
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id);

-- name: lease_extend
-- Moves the expiry of the lease that this token holds.
UPDATE lash_session_leases
SET expires_at_ms = :expires_at_ms
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND token = :token AND fencing = :fencing;

-- name: lease_release
-- Frees the lease if the fence still holds it, expired or not, and pauses the session unless the pause is zero; the
-- fencing number stays.
UPDATE lash_session_leases
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    paused_until_ms = CASE WHEN :pause_ms > 0 THEN :now_ms + :pause_ms END
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND owner_id = :owner_id AND incarnation_id = :incarnation_id AND token = :token AND fencing = :fencing;
