-- name: process_lease_row
-- The lease row of one process, and the time.
SELECT
    :"schema".lash_now_ms(),
    row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms)
FROM :"schema".lash_processes AS p
JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.process_id = $1::text;

-- name: process_lease_acquire
-- Claims of different processes, at most 32, in one statement. For each it gives the lease to a new holder under the
-- next fencing number if it is free, expired, or still the acquisition of the token and fencing number to displace, and
-- appends the event of the start unless the log has it. The process must have the number of events and the wake target
-- of the decision. It is ready from now on, in case the holder lets the lease expire. Returns for each existing process
-- its position, the lease row before the statement and, if it was acquired, the row after it with the number of reasons
-- to run, whether the process may have recorded effects, whether the event was appended, and the number of crashes: a
-- lease that was not released counts as one. Leases are locked before processes and both in key order, as everywhere. The
-- LIMIT is for the estimates of the planner; OFFSET 0 makes it look rows up.
-- The condition repeats the rule of plan_claim: reading the lease first, to let the plan decide, would cost a round
-- trip on every claim. A lease that this statement refuses is decided by plan_claim.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Whether an event of its own has the key is looked up once per process: further down the planner would do it for every
-- pair.
asked AS MATERIALIZED (
    SELECT
        a.*,
        EXISTS (
            SELECT 1 FROM :"schema".lash_process_events AS e
            WHERE e.process_key = a.process_key AND e.replay_key = a.replay_key
            OFFSET 0
        ) AS was_started
    FROM unnest(
        $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
        $9::text[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[]
    ) AS a (
        process_key, last_sequence, wake_session_id, owner_id, incarnation_id, process, token, ttl_ms, displaced_token,
        displaced_fencing, event_type, replay_key, payload_hash, payload, projection
    )
    LIMIT 32
),
before AS (
    SELECT l.*
    FROM :"schema".lash_process_leases AS l
    WHERE l.process_key = ANY ($1::bigint[])
    ORDER BY l.process_key
    FOR NO KEY UPDATE
),
-- Locked until the end of the statement, so that no process can end while its lease is acquired.
process AS (
    SELECT p.process_key, p.process_id, p.status, p.last_sequence, p.wake_session_id
    FROM :"schema".lash_processes AS p
    WHERE p.process_key = ANY (ARRAY(SELECT before.process_key FROM before))
    ORDER BY p.process_key
    FOR NO KEY UPDATE
),
taken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET fencing = l.fencing + 1, owner_id = a.owner_id, incarnation_id = a.incarnation_id, process = a.process,
        token = a.token, claimed_at_ms = clock.now_ms,
        expires_at_ms = least(clock.now_ms, 9223372036854775807 - a.ttl_ms) + a.ttl_ms,
        ready_at_ms = least(l.ready_at_ms, clock.now_ms),
        crash_count = l.crash_count + CASE WHEN l.token IS NULL THEN 0 ELSE 1 END
    FROM clock, asked AS a
    JOIN before ON before.process_key = a.process_key
    JOIN process ON process.process_key = a.process_key
    WHERE l.process_key = a.process_key
        AND process.last_sequence = a.last_sequence AND process.wake_session_id IS NOT DISTINCT FROM a.wake_session_id
        AND (
            before.token IS NULL
            OR before.expires_at_ms <= clock.now_ms
            OR (
                before.token = a.displaced_token AND before.fencing = a.displaced_fencing
                AND (before.owner_id, before.incarnation_id) <> (a.owner_id, a.incarnation_id)
            )
        )
    RETURNING
        l.process_key,
        l.wake_seq,
        l.crash_count,
        row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms) AS lease
),
started AS (
    UPDATE :"schema".lash_processes AS p
    SET projection = a.projection, last_sequence = a.last_sequence + 1, updated_at_ms = clock.now_ms
    FROM clock, taken
    JOIN asked AS a ON a.process_key = taken.process_key
    WHERE p.process_key = a.process_key AND NOT a.was_started
        AND NOT coalesce(a.replay_key IN (p.start_replay_key, p.end_replay_key), false)
    RETURNING p.process_key, p.last_sequence, p.status, p.updated_at_ms AS now_ms
),
event AS (
    INSERT INTO :"schema".lash_process_events (
        process_key, sequence, status, event_type, replay_key, payload_hash, payload, occurred_at_ms
    )
    SELECT
        started.process_key, started.last_sequence, started.status, a.event_type, a.replay_key, a.payload_hash,
        a.payload, started.now_ms
    FROM started
    JOIN asked AS a ON a.process_key = started.process_key
)
SELECT
    process.process_key,
    clock.now_ms,
    process.last_sequence,
    process.wake_session_id,
    row(
        before.fencing, before.owner_id, before.incarnation_id, before.process, before.token, before.claimed_at_ms,
        before.expires_at_ms
    ),
    taken.lease,
    taken.wake_seq,
    -- The snapshot is older than the lock: a holder may have recorded an effect and released the lease in between.
    before.fencing > 0
    OR EXISTS (SELECT 1 FROM :"schema".lash_effects AS e WHERE e.process_key = taken.process_key OFFSET 0),
    started.process_key IS NOT NULL,
    coalesce(taken.crash_count, 0)
FROM clock, process
JOIN before ON before.process_key = process.process_key
LEFT JOIN taken ON taken.process_key = process.process_key
LEFT JOIN started ON started.process_key = process.process_key;

-- name: process_lease_complete
-- Ends of different processes, at most 32, in one statement. For each it writes everything, or nothing if a fact of the
-- decision no longer holds: the number of events and the wake target of the process, no event of the replay key yet, a
-- live lease under the fence. It writes the event of the end into the row of the process, takes it off the work list,
-- frees the lease, and gives the parent a reason to run if requested. Returns the keys of the processes that were ended,
-- and the time. All leases are locked first and in key order, as everywhere.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
asked AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::text[], $12::text[], $13::bigint[], $14::boolean[]
    ) AS a (
        process_key, last_sequence, wake_session_id, event_type, replay_key, payload_hash, payload, projection, status,
        owner_id, incarnation_id, token, fencing, wakes_parent
    )
    LIMIT 32
),
parent AS (
    SELECT a.process_key AS child_key, started.process_key
    FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT p.parent_process_id FROM :"schema".lash_processes AS p WHERE p.process_key = a.process_key OFFSET 0
    ) AS child
    CROSS JOIN LATERAL (
        SELECT p.process_key FROM :"schema".lash_processes AS p WHERE p.process_id = child.parent_process_id OFFSET 0
    ) AS started
    WHERE a.wakes_parent
),
lease AS (
    SELECT l.process_key, l.owner_id, l.incarnation_id, l.token, l.fencing, l.expires_at_ms
    FROM :"schema".lash_process_leases AS l
    WHERE l.process_key = ANY ($1::bigint[] || ARRAY(SELECT parent.process_key FROM parent))
    ORDER BY l.process_key
    FOR NO KEY UPDATE
),
-- The count takes the locks.
guard AS (
    SELECT a.*, clock.now_ms
    FROM clock, asked AS a
    JOIN lease AS l ON l.process_key = a.process_key
    WHERE (SELECT count(*) FROM lease) > 0
        AND l.owner_id = a.owner_id AND l.incarnation_id = a.incarnation_id AND l.token = a.token
        AND l.fencing = a.fencing AND l.expires_at_ms > clock.now_ms
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_process_events AS e
            WHERE e.process_key = a.process_key AND e.replay_key = a.replay_key
            OFFSET 0
        )
),
moved AS (
    UPDATE :"schema".lash_processes AS p
    SET projection = guard.projection, status = guard.status, waiting = false,
        last_sequence = guard.last_sequence + 1, updated_at_ms = guard.now_ms,
        ended_at_ms = guard.now_ms, end_xid = pg_current_xact_id(), end_seq = :"schema".lash_next_change(),
        end_sequence = guard.last_sequence + 1, end_type = guard.event_type, end_replay_key = guard.replay_key,
        end_payload_hash = guard.payload_hash, end_payload = guard.payload
    FROM guard
    WHERE p.process_key = guard.process_key AND p.last_sequence = guard.last_sequence
        AND p.wake_session_id IS NOT DISTINCT FROM guard.wake_session_id
        AND NOT coalesce(guard.replay_key IN (p.start_replay_key, p.end_replay_key), false)
    RETURNING p.process_key, p.updated_at_ms AS now_ms
),
freed AS (
    UPDATE :"schema".lash_process_leases AS l
    SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
        runnable = false, ready_at_ms = NULL
    FROM moved
    WHERE l.process_key = moved.process_key
),
-- A process that ends here is not woken, and no row may be changed twice.
woken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET wake_seq = l.wake_seq + reason.count, ready_at_ms = least(l.ready_at_ms, clock.now_ms)
    FROM clock, (
        SELECT parent.process_key, count(*) AS count
        FROM parent
        JOIN moved ON moved.process_key = parent.child_key
        WHERE parent.process_key NOT IN (SELECT ending.process_key FROM moved AS ending)
        GROUP BY parent.process_key
        LIMIT 32
    ) AS reason
    WHERE l.process_key = reason.process_key AND l.runnable
)
SELECT moved.process_key, moved.now_ms FROM moved;

-- name: process_lease_extend
-- Moves the expiry of the lease that the fence holds, expired or not, to now plus the time to live, never to an earlier
-- moment. Returns the lease and the number of reasons to run.
WITH clock AS (
    SELECT least(:"schema".lash_now_ms(), 9223372036854775807 - $6::bigint) + $6::bigint AS expires_at_ms
)
UPDATE :"schema".lash_process_leases AS l
SET expires_at_ms = greatest(l.expires_at_ms, clock.expires_at_ms)
FROM clock, :"schema".lash_processes AS p
WHERE p.process_id = $1::text AND l.process_key = p.process_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
RETURNING
    row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms), l.wake_seq;

-- name: process_lease_release
-- Frees the lease if the fence still holds it, expired or not; the fencing number stays, and the process is ready since
-- its claim.
UPDATE :"schema".lash_process_leases AS l
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text AND l.process_key = p.process_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
RETURNING true;

-- name: process_lease_park
-- Frees the lease if the fence holds it and it is live, and takes the process off the work list until $7 (NULL: until
-- it is woken), unless there are more reasons to run it than the $6 seen. Returns false if there are. A concurrent
-- reason waits for this row, or this statement waits for it: one of them sees the other. The run ended as planned, so
-- crashes are counted from zero.
UPDATE :"schema".lash_process_leases AS l
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
    crash_count = 0,
    ready_at_ms = CASE WHEN l.runnable AND l.wake_seq = $6::bigint THEN $7::bigint ELSE l.ready_at_ms END
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text AND l.process_key = p.process_key
    AND l.owner_id = $2::text AND l.incarnation_id = $3::text AND l.token = $4::text AND l.fencing = $5::bigint
    AND l.expires_at_ms > :"schema".lash_now_ms()
RETURNING l.wake_seq = $6::bigint OR NOT l.runnable;
