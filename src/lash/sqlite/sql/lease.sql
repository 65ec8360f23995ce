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
