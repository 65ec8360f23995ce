-- name: event_facts
-- The facts that decide about an append under replay key $2: the time, the process, its lease, and the event of that
-- key with the state of its wake.
SELECT
    :"schema".lash_now_ms(),
    row(
        p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
        p.last_sequence, p.created_at_ms, p.updated_at_ms
    ),
    row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms),
    (
        SELECT row(
            row(e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms),
            w.state, w.batch_id
        )
        FROM :"schema".lash_process_log AS e
        LEFT JOIN :"schema".lash_wakes AS w ON w.process_key = e.process_key AND w.sequence = e.sequence
        WHERE e.process_key = p.process_key AND e.replay_key = $2::text
    )
FROM :"schema".lash_processes AS p
JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.process_id = $1::text;

-- name: event_lock
-- Locks the lease row of a process and then its own row, in the lock order of claims and completions.
WITH lease AS (
    SELECT l.process_key
    FROM :"schema".lash_processes AS p
    JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
    WHERE p.process_id = $1::text
    FOR NO KEY UPDATE OF l
)
SELECT p.process_key
FROM lease
JOIN :"schema".lash_processes AS p ON p.process_key = lease.process_key
FOR NO KEY UPDATE OF p;

-- name: event_append
-- An append in one statement: the event, the new state of the process, and the wake with its batch. It writes
-- everything, or nothing if a fact of the decision no longer holds: the number of events $2 and the wake target $3 of the
-- process (which guard all facts about it), no event of the replay key $5 yet, a live lease under the fence $20 to $23 if
-- there is one, no live lease if $24. The process gets one more reason to run if $25. If $26 it is never run again, the
-- event is in its row, and the lease of the fence is freed; its parent gets a reason to run if $27. The effects of its
-- last run are deleted if $28. Returns the time and the state of the wake, or no row.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
parent AS (
    SELECT started.process_key
    FROM :"schema".lash_processes AS p
    JOIN :"schema".lash_processes AS started ON started.process_id = p.parent_process_id
    WHERE p.process_key = $1::bigint AND $27::boolean
),
-- Locked before the process, so that claims, completions and prunings take their locks in one order; the two leases in
-- key order, so that processes that are each other's parents do so too.
lease AS (
    SELECT l.process_key, l.owner_id, l.incarnation_id, l.token, l.fencing, l.expires_at_ms
    FROM :"schema".lash_process_leases AS l
    WHERE l.process_key = ANY (
            ARRAY[
                CASE WHEN $22::text IS NOT NULL OR $24::boolean OR $25::boolean OR $26::boolean THEN $1::bigint END,
                (SELECT parent.process_key FROM parent)
            ]
        )
    ORDER BY l.process_key
    FOR NO KEY UPDATE
),
-- The count takes the locks.
guard AS (
    SELECT clock.now_ms
    FROM clock, (SELECT count(*) AS count FROM lease) AS locked
    WHERE NOT EXISTS (
            SELECT 1 FROM :"schema".lash_process_events AS e
            WHERE e.process_key = $1::bigint AND e.replay_key = $5::text
        )
        AND ($22::text IS NULL OR EXISTS (
            SELECT 1 FROM lease AS l
            WHERE l.process_key = $1::bigint AND l.owner_id = $20::text AND l.incarnation_id = $21::text AND l.token = $22::text
                AND l.fencing = $23::bigint AND l.expires_at_ms > clock.now_ms
        ))
        AND NOT ($24::boolean AND EXISTS (
            SELECT 1 FROM lease AS l
            WHERE l.process_key = $1::bigint AND l.token IS NOT NULL AND l.expires_at_ms > clock.now_ms
        ))
),
moved AS (
    UPDATE :"schema".lash_processes AS p
    SET projection = $9::text, status = $10::text, waiting = $11::boolean, last_sequence = $2::bigint + 1,
        updated_at_ms = guard.now_ms,
        ended_at_ms = CASE WHEN $10::text <> 'running' THEN coalesce(p.ended_at_ms, guard.now_ms) END,
        end_xid = CASE WHEN $26::boolean THEN pg_current_xact_id() ELSE p.end_xid END,
        end_seq = CASE WHEN $26::boolean THEN :"schema".lash_next_change() ELSE p.end_seq END,
        end_sequence = CASE WHEN $26::boolean THEN $2::bigint + 1 ELSE p.end_sequence END,
        end_type = CASE WHEN $26::boolean THEN $4::text ELSE p.end_type END,
        end_replay_key = CASE WHEN $26::boolean THEN $5::text ELSE p.end_replay_key END,
        end_payload_hash = CASE WHEN $26::boolean THEN $6::text ELSE p.end_payload_hash END,
        end_payload = CASE WHEN $26::boolean THEN $7::text ELSE p.end_payload END,
        end_wake = CASE WHEN $26::boolean THEN $8::text ELSE p.end_wake END
    FROM guard
    WHERE p.process_key = $1::bigint AND p.last_sequence = $2::bigint
        AND p.wake_session_id IS NOT DISTINCT FROM $3::text
        AND NOT coalesce($5::text IN (p.start_replay_key, p.end_replay_key), false)
    RETURNING p.process_key, p.last_sequence, p.status, p.updated_at_ms AS now_ms
),
event AS (
    INSERT INTO :"schema".lash_process_events (
        process_key, sequence, status, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
    )
    SELECT
        moved.process_key, moved.last_sequence, moved.status, $4::text, $5::text, $6::text, $7::text, $8::text,
        moved.now_ms
    FROM moved
    WHERE NOT $26::boolean
),
-- The lock prevents a concurrent deletion of the session; it does not wait for commits.
target AS (
    SELECT s.session_key, s.agent
    FROM moved, :"schema".lash_sessions AS s
    WHERE s.session_id = $12::text
    FOR KEY SHARE OF s
),
-- A wake whose key is known is merged into the first one. The update changes nothing: it returns that wake, even if it
-- was committed after the snapshot of this statement.
reserved AS (
    INSERT INTO :"schema".lash_source_keys AS k (session_key, source_key, batch_id, content_hash, state)
    SELECT target.session_key, $13::text, $14::text, $15::text, 'pending'
    FROM target
    ON CONFLICT (session_key, source_key) DO UPDATE SET content_hash = k.content_hash
    RETURNING k.session_key, k.batch_id
),
batch AS (
    INSERT INTO :"schema".lash_batches (
        session_key, batch_id, source_key, lane, delivery, slot, available_at_ms, enqueued_at_ms, payloads, agent
    )
    SELECT
        reserved.session_key, $14::text, $13::text, $16::text, $17::text, $18::text, 0, moved.now_ms, $19::text,
        target.agent
    FROM moved, reserved, target
    WHERE reserved.batch_id = $14::text
),
wake AS (
    INSERT INTO :"schema".lash_wakes (process_key, sequence, target_session_id, batch_id, state)
    SELECT
        moved.process_key, moved.last_sequence, $12::text, reserved.batch_id,
        CASE
            WHEN $12::text IS NULL THEN 'no_target'
            WHEN reserved.batch_id IS NULL THEN 'undeliverable'
            WHEN reserved.batch_id = $14::text THEN 'queued'
            ELSE 'merged'
        END
    FROM moved
    LEFT JOIN reserved ON true
    WHERE $8::text IS NOT NULL
    RETURNING state, batch_id
),
freed AS (
    UPDATE :"schema".lash_process_leases AS l
    SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0,
        runnable = false, ready_at_ms = NULL
    FROM moved
    WHERE l.process_key = moved.process_key AND l.token = $22::text AND $26::boolean
),
forgotten AS (
    DELETE FROM :"schema".lash_effects AS e USING moved
    WHERE e.process_key = moved.process_key AND $28::boolean
    RETURNING 1
),
-- The count lets the effects go first.
forgotten_groups AS (
    DELETE FROM :"schema".lash_effect_groups AS g USING moved, (SELECT count(*) AS number FROM forgotten) AS counted
    WHERE g.process_key = moved.process_key AND $28::boolean AND counted.number >= 0
),
ended AS (
    UPDATE :"schema".lash_process_leases AS l
    SET runnable = false, ready_at_ms = NULL
    FROM moved
    WHERE l.process_key = moved.process_key AND $26::boolean AND $22::text IS NULL
),
woken AS (
    UPDATE :"schema".lash_process_leases AS l
    SET wake_seq = l.wake_seq + 1, ready_at_ms = least(l.ready_at_ms, moved.now_ms)
    FROM moved
    WHERE l.process_key = ANY (
            ARRAY[CASE WHEN $25::boolean THEN moved.process_key END, (SELECT parent.process_key FROM parent)]
        )
        AND l.runnable
)
SELECT moved.now_ms, wake.state, wake.batch_id
FROM moved
LEFT JOIN wake ON true;

-- name: event_after
-- The events of a process after a number, in order. No row if the process does not exist.
SELECT
    p.process_key,
    array(
        SELECT row(e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms)
        FROM :"schema".lash_process_log AS e
        WHERE e.process_key = p.process_key AND e.sequence > $2::bigint
        ORDER BY e.sequence
        LIMIT $3::bigint
    )
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: event_after_of_type
-- The events of one type after a number, in order. No row if the process does not exist.
SELECT
    p.process_key,
    array(
        SELECT row(e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms)
        FROM :"schema".lash_process_log AS e
        WHERE e.process_key = p.process_key AND e.event_type = $4::text AND e.sequence > $2::bigint
        ORDER BY e.sequence
        LIMIT $3::bigint
    )
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: event_recent
-- The last events of a process, the newest first. No row if the process does not exist.
SELECT
    p.process_key,
    array(
        SELECT row(e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms)
        FROM :"schema".lash_process_log AS e
        WHERE e.process_key = p.process_key
        ORDER BY e.sequence DESC
        LIMIT $2::bigint
    )
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: event_nth_of_type
-- The event of a type that $3 others of it precede. No row if the process does not exist.
SELECT
    p.process_key,
    array(
        SELECT row(e.sequence, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake, e.occurred_at_ms)
        FROM :"schema".lash_process_log AS e
        WHERE e.process_key = p.process_key AND e.event_type = $2::text
        ORDER BY e.sequence
        LIMIT 1
        OFFSET $3::bigint
    )
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: event_count_through
-- How many events of a type there are up to and including a number. No row if the process does not exist.
SELECT (
    SELECT count(*) FROM :"schema".lash_process_log AS e
    WHERE e.process_key = p.process_key AND e.event_type = $2::text AND e.sequence <= $3::bigint
)
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: event_last_sequences
-- The numbers of the last events of some processes.
SELECT p.process_id, p.last_sequence
FROM :"schema".lash_processes AS p
WHERE p.process_id = ANY ($1::text[]);

-- name: event_open_wakes
-- The open wakes of a process after a number. No row if the process does not exist.
SELECT
    p.process_key,
    array(
        SELECT row(w.sequence, coalesce(e.event_type, p.end_type), coalesce(e.wake, p.end_wake), w.state, w.batch_id)
        FROM :"schema".lash_wakes AS w
        LEFT JOIN :"schema".lash_process_events AS e ON e.process_key = w.process_key AND e.sequence = w.sequence
        WHERE w.process_key = p.process_key AND w.sequence > $2::bigint
            AND w.state NOT IN ('acknowledged', 'merged')
        ORDER BY w.sequence
    )
FROM :"schema".lash_processes AS p
WHERE p.process_id = $1::text;

-- name: event_acknowledge_wake
-- Acknowledges a wake, and returns whether it was open. No row if the process does not exist.
WITH process AS (SELECT process_key FROM :"schema".lash_processes WHERE process_id = $1::text),
acknowledged AS (
    UPDATE :"schema".lash_wakes AS w
    SET state = 'acknowledged'
    FROM process
    WHERE w.process_key = process.process_key AND w.sequence = $2::bigint AND w.state NOT IN ('acknowledged', 'merged')
    RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM acknowledged) FROM process;

-- name: event_undeliverable_wakes
-- The wakes whose session does not exist, after one of them.
SELECT
    p.process_id, w.sequence, coalesce(e.event_type, p.end_type), coalesce(e.wake, p.end_wake), w.state, w.batch_id
FROM :"schema".lash_wakes AS w
JOIN :"schema".lash_processes AS p ON p.process_key = w.process_key
LEFT JOIN :"schema".lash_process_events AS e ON e.process_key = w.process_key AND e.sequence = w.sequence
WHERE w.state = 'undeliverable' AND (p.process_id, w.sequence) > ($1::text, $2::bigint)
ORDER BY p.process_id, w.sequence
LIMIT $3::bigint;

-- name: event_lose_session
-- Marks the queued wakes of a session as undeliverable.
UPDATE :"schema".lash_wakes SET state = 'undeliverable' WHERE target_session_id = $1::text AND state = 'queued';
