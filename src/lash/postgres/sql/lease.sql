-- name: lease_row
-- The lease row of one session, and the time.
SELECT
    :"schema".lash_now_ms(),
    row(
        l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms,
        l.paused_until_ms, l.wake_seq, l.waiting_for
    )
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = $1::text;

-- name: lease_acquire
-- Gives the lease to a new holder under the next fencing number if it is free, expired, or still the acquisition of
-- token $7 and fencing number $8 by another holder; this ends a pause, and makes a parked turn ready. Returns the time,
-- the row before the statement, and the row after it if the lease was acquired.
-- The condition repeats the rule of plan_claim: reading the row first, to let the plan decide, would cost a round trip
-- on every claim. A lease that this statement refuses is decided by plan_claim.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
before AS (
    SELECT l.*
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = $1::text
    FOR NO KEY UPDATE OF l
),
taken AS (
    UPDATE :"schema".lash_session_leases AS l
    SET fencing = l.fencing + 1, owner_id = $2::text, incarnation_id = $3::text, process = $4::text, token = $5::text,
        claimed_at_ms = clock.now_ms, expires_at_ms = least(clock.now_ms, 9223372036854775807 - $6::bigint) + $6::bigint,
        paused_until_ms = CASE WHEN l.waiting_for IS NOT NULL THEN 0 END
    FROM clock, before
    WHERE l.session_key = before.session_key
        AND (
            before.token IS NULL
            OR before.expires_at_ms <= clock.now_ms
            OR (
                before.token = $7::text AND before.fencing = $8::bigint
                AND (before.owner_id, before.incarnation_id) <> ($2::text, $3::text)
            )
        )
    RETURNING
        row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms) AS lease
)
SELECT
    clock.now_ms,
    row(
        before.fencing, before.owner_id, before.incarnation_id, before.process, before.token, before.claimed_at_ms,
        before.expires_at_ms
    ),
    taken.lease
FROM clock, before
LEFT JOIN taken ON true;

-- name: lease_extend
-- Moves the expiry of the lease that the fence holds, expired or not, and of every claim made under it to now plus the
-- time to live, never to an earlier moment.
WITH clock AS (
    SELECT least(:"schema".lash_now_ms(), 9223372036854775807 - $6::bigint) + $6::bigint AS expires_at_ms
),
extended AS (
    UPDATE :"schema".lash_session_leases AS l
    SET expires_at_ms = greatest(l.expires_at_ms, clock.expires_at_ms)
    FROM clock, :"schema".lash_sessions AS s
    WHERE s.session_id = $1::text AND l.session_key = s.session_key
        AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
    RETURNING
        l.session_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
),
claims AS (
    UPDATE :"schema".lash_batches AS b
    SET claim_expires_at_ms = greatest(b.claim_expires_at_ms, extended.expires_at_ms)
    FROM extended
    WHERE b.session_key = extended.session_key AND b.claim_token IS NOT NULL
        AND b.claim_lease_fencing = extended.fencing
)
SELECT fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms FROM extended;

-- name: lease_release
-- Frees the lease if the fence still holds it, expired or not, and pauses the session for $6 milliseconds unless that
-- is zero; the fencing number stays, and a turn that was parked before the lease is ready.
UPDATE :"schema".lash_session_leases AS l
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    paused_until_ms = CASE
        WHEN $6::bigint > 0 THEN :"schema".lash_now_ms() + $6::bigint
        WHEN l.waiting_for IS NOT NULL THEN 0
    END
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text AND l.session_key = s.session_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
RETURNING true;

-- name: lease_live
-- The live leases of sessions and processes, or of the kind $1, after the position $2, $3, $4, in the order in which they
-- were acquired, at most $5.
WITH clock AS MATERIALIZED (SELECT :"schema".lash_now_ms() AS now_ms),
live (kind, key, fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms) AS (
    SELECT
        'session' COLLATE "C", l.session_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
    FROM clock
    JOIN :"schema".lash_session_leases AS l ON l.process IS NOT NULL AND l.expires_at_ms > clock.now_ms
    WHERE $1::text IS DISTINCT FROM 'process'
    UNION ALL
    SELECT
        'session', l.session_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
    FROM clock
    JOIN :"schema".lash_session_leases AS l
        ON l.token IS NOT NULL AND l.process IS NULL AND l.expires_at_ms > clock.now_ms
    WHERE $1::text IS DISTINCT FROM 'process'
    UNION ALL
    SELECT
        'process', l.process_key, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
    FROM clock
    JOIN :"schema".lash_process_leases AS l
        ON l.ready_at_ms IS NOT NULL AND l.token IS NOT NULL AND l.expires_at_ms > clock.now_ms
    WHERE $1::text IS DISTINCT FROM 'session'
),
page AS (
    SELECT live.*
    FROM live
    WHERE (live.claimed_at_ms, live.kind, live.key) > ($2::bigint, $3::text, $4::bigint)
    ORDER BY live.claimed_at_ms, live.kind, live.key
    LIMIT $5::bigint
)
SELECT
    p.kind,
    CASE p.kind
        WHEN 'session' THEN (SELECT s.session_id FROM :"schema".lash_sessions AS s WHERE s.session_key = p.key)
        ELSE (SELECT o.process_id FROM :"schema".lash_processes AS o WHERE o.process_key = p.key)
    END,
    p.key, p.fencing, p.owner_id, p.incarnation_id, p.process, p.token, p.claimed_at_ms, p.expires_at_ms
FROM page AS p
ORDER BY p.claimed_at_ms, p.kind, p.key;

-- name: lease_park
-- Frees the lease if the fence holds it and it is live, and parks the turn until $7 as waiting for $8, unless there are
-- more reasons to continue it than the $6 seen. The input of a parked turn is off the work list; other input is queued
-- again, and its attempt does not count. Returns whether the turn is parked. A concurrent reason waits for this row, or
-- this statement waits for it: one of them sees the other.
WITH lease AS (
    UPDATE :"schema".lash_session_leases AS l
    SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
        paused_until_ms = CASE WHEN l.wake_seq = $6::bigint THEN $7::bigint END,
        waiting_for = CASE WHEN l.wake_seq = $6::bigint THEN $8::text END
    FROM :"schema".lash_sessions AS s
    WHERE s.session_id = $1::text AND l.session_key = s.session_key
        AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
        AND l.expires_at_ms > :"schema".lash_now_ms()
    RETURNING l.session_key, l.waiting_for IS NOT NULL AS parked
),
input AS (
    UPDATE :"schema".lash_batches AS b
    SET available_at_ms = CASE WHEN lease.parked THEN 9223372036854775807 ELSE b.available_at_ms END,
        claim_count = CASE WHEN lease.parked THEN b.claim_count ELSE greatest(b.claim_count - 1, 0) END,
        claim_id = NULL, claim_token = NULL, claim_lease_fencing = NULL, claim_expires_at_ms = NULL
    FROM lease
    WHERE b.session_key = lease.session_key AND b.claim_token IS NOT NULL AND b.claim_lease_fencing = $5::bigint
)
SELECT parked FROM lease;

-- name: lease_unpark
-- Ends the parking of a turn that is ready, and puts its input back into its place in the queue; the claim that follows
-- counts no further attempt.
WITH lease AS (
    UPDATE :"schema".lash_session_leases AS l
    SET waiting_for = NULL, paused_until_ms = NULL
    WHERE l.session_key = $1::bigint AND l.waiting_for IS NOT NULL AND l.paused_until_ms <= :"schema".lash_now_ms()
    RETURNING l.session_key
),
input AS (
    UPDATE :"schema".lash_batches AS b
    SET available_at_ms = 0, claim_count = greatest(b.claim_count - 1, 0)
    FROM lease
    WHERE b.session_key = lease.session_key AND b.available_at_ms = 9223372036854775807
)
SELECT session_key FROM lease;
