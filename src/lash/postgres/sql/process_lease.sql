-- name: process_lease_row
-- The lease row of one process, and the time.
SELECT
    :"schema".lash_now_ms(),
    row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms)
FROM :"schema".lash_processes AS p
JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.process_id = $1::text;

-- name: process_lease_acquire
-- Gives the lease to a new holder under the next fencing number if it is free or lapsed, or if it is still the very one
-- of token $9 and fencing number $10; appends the event of its start unless the log has it. The process must stand at the
-- number of events $2 and the wake target $3 of the plan. It is ready from now on, should the holder let the lease go.
-- Answers the time, where the process stood, the lease as it was, and, where it was taken, as it is with the number of
-- reasons to run, and whether the event was appended. No row without process.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
before AS (
    SELECT l.*
    FROM :"schema".lash_process_leases AS l
    WHERE l.process_key = $1::bigint
    FOR NO KEY UPDATE
),
-- Held until the end of the statement, so that the process cannot end while the right to run it is given away.
process AS (
    SELECT p.process_key, p.process_id, p.status, p.last_sequence, p.wake_session_id
    FROM before
    JOIN :"schema".lash_processes AS p ON p.process_key = before.process_key
    FOR NO KEY UPDATE OF p
),
taken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET fencing = l.fencing + 1, owner_id = $4::text, incarnation_id = $5::text, process = $6::text, token = $7::text,
        claimed_at_ms = clock.now_ms, expires_at_ms = least(clock.now_ms, 9223372036854775807 - $8::bigint) + $8::bigint,
        ready_at_ms = least(l.ready_at_ms, clock.now_ms)
    FROM clock, before, process
    WHERE l.process_key = before.process_key
        AND process.last_sequence = $2::bigint AND process.wake_session_id IS NOT DISTINCT FROM $3::text
        AND (
            before.token IS NULL
            OR before.expires_at_ms <= clock.now_ms
            OR (
                before.token = $9::text AND before.fencing = $10::bigint
                AND (before.owner_id, before.incarnation_id) <> ($4::text, $5::text)
            )
        )
    RETURNING
        l.process_key,
        l.wake_seq,
        row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms) AS lease
),
started AS (
    UPDATE :"schema".lash_processes AS p
    SET projection = $15::text, last_sequence = $2::bigint + 1, updated_at_ms = clock.now_ms
    FROM clock, taken
    WHERE p.process_key = taken.process_key
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_process_events AS e
            WHERE e.process_key = taken.process_key AND e.replay_key = $12::text
            OFFSET 0
        )
    RETURNING p.process_key, p.process_id, p.last_sequence, p.status, p.updated_at_ms AS now_ms
),
event AS (
    INSERT INTO :"schema".lash_process_events (
        process_key, sequence, event_type, replay_key, payload_hash, payload, occurred_at_ms
    )
    SELECT started.process_key, started.last_sequence, $11::text, $12::text, $13::text, $14::text, started.now_ms
    FROM started
),
change AS (
    INSERT INTO :"schema".lash_process_changes (process_id, kind, sequence, status, occurred_at_ms)
    SELECT started.process_id, 'event', started.last_sequence, started.status, started.now_ms
    FROM started
)
SELECT
    clock.now_ms,
    process.last_sequence,
    process.wake_session_id,
    row(
        before.fencing, before.owner_id, before.incarnation_id, before.process, before.token, before.claimed_at_ms,
        before.expires_at_ms
    ),
    taken.lease,
    taken.wake_seq,
    EXISTS (SELECT 1 FROM started)
FROM clock, before, process
LEFT JOIN taken ON true;

-- name: process_lease_extend
-- Moves the expiry of a live lease to the time to live from now, never to an earlier moment. Answers the lease and the
-- number of reasons to run.
WITH clock AS (
    SELECT
        :"schema".lash_now_ms() AS now_ms,
        least(:"schema".lash_now_ms(), 9223372036854775807 - $6::bigint) + $6::bigint AS expires_at_ms
)
UPDATE :"schema".lash_process_leases AS l
SET expires_at_ms = greatest(l.expires_at_ms, clock.expires_at_ms)
FROM clock, :"schema".lash_processes AS p
WHERE p.process_id = $1::text AND l.process_key = p.process_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
    AND l.expires_at_ms > clock.now_ms
RETURNING
    row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms), l.wake_seq;

-- name: process_lease_release
-- Frees the lease if the fence still holds it, expired or not; the fencing number stays, and a claim made it ready.
UPDATE :"schema".lash_process_leases AS l
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text AND l.process_key = p.process_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
RETURNING true;

-- name: process_lease_park
-- Frees the lease if the fence holds it and it is live, and takes the process off the work list until $7 (NULL: until it
-- is woken), unless there are more reasons to run it than the $6 seen. Answers whether there are not. A reason that comes
-- at the same time waits for this row, or this statement for it: one of them sees the other.
UPDATE :"schema".lash_process_leases AS l
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    ready_at_ms = CASE WHEN l.runnable AND l.wake_seq = $6::bigint THEN $7::bigint ELSE l.ready_at_ms END
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text AND l.process_key = p.process_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
    AND l.expires_at_ms > :"schema".lash_now_ms()
RETURNING l.wake_seq = $6::bigint OR NOT l.runnable;
