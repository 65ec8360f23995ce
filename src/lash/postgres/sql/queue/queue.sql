-- fragment: queue_reserve
-- The source key $3 of a new batch $2, if it is not known.
reserved AS (
    INSERT INTO :"schema".lash_source_keys (session_key, source_key, batch_id, content_hash, state)
    SELECT s.session_key, $3::text, $2::text, $4::text, 'pending'
    FROM s
    WHERE $3::text IS NOT NULL
    ON CONFLICT (session_key, source_key) DO NOTHING
    RETURNING 1
)

-- fragment: queue_new_columns
-- The columns of a new batch that do not depend on a claim.
        session_key, batch_id, source_key, lane, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, payloads,
        wake_session_id, priority, agent, names_agent

-- fragment: queue_new_values
-- Their values; delayed work that is due is ready.
        s.session_key, $2::text, $3::text, $5::text, $6::text, $7::text, $8::text,
        CASE WHEN $9::bigint > clock.now_ms THEN $9::bigint ELSE 0 END, clock.now_ms, $10::text, $11::text,
        $12::bigint, coalesce($13::text, s.agent), $13::text IS NOT NULL

-- name: queue_enqueue
-- Adds a batch to the end of the queue, unless its source key is known or the session does not exist. The lock prevents
-- a concurrent deletion of the session; it does not wait for commits. A command is a reason to continue a parked turn.
WITH s AS (SELECT session_key, agent FROM :"schema".lash_sessions WHERE session_id = $1::text FOR KEY SHARE),
clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- include: queue_reserve
,
written AS (
    INSERT INTO :"schema".lash_batches (
-- include: queue_new_columns
    )
    SELECT
-- include: queue_new_values
    FROM s, clock
    WHERE $3::text IS NULL OR EXISTS (SELECT 1 FROM reserved)
    RETURNING
        session_key, seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count,
        failure_count, priority, payloads
),
noted AS (
    INSERT INTO :"schema".lash_session_wakes (wake_id, session_key)
    SELECT replace(gen_random_uuid()::text, '-', ''), written.session_key
    FROM written
    WHERE $5::text = 'command'
)
SELECT
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads
FROM written;

-- name: queue_enqueue_turn
-- Adds a batch that is not a command, as queue_enqueue does. If nothing else is queued for its session and the lease is
-- free, this gives the lease to a new holder ($14 to $17) under the next fencing number, and puts a claim ($18 to $20)
-- on the batch. The lease must have been free, with the same number, when the statement began: what it reads was read
-- then. It does not wait for a lease that another transaction has locked. Returns the batch, the time, the fencing
-- number, NULL without a claim, and what the turn starts from.
WITH s AS (
    SELECT session_key, agent, revision, leaf_node_id
    FROM :"schema".lash_sessions
    WHERE session_id = $1::text
    FOR KEY SHARE
),
clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
seen AS MATERIALIZED (
    SELECT l.session_key, l.fencing
    FROM :"schema".lash_session_leases AS l
    JOIN s ON s.session_key = l.session_key
    WHERE l.token IS NULL AND l.paused_until_ms IS NULL AND l.waiting_for IS NULL
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_batches AS b WHERE b.session_key = l.session_key)
),
free AS (
    SELECT l.session_key
    FROM :"schema".lash_session_leases AS l
    JOIN seen ON seen.session_key = l.session_key AND seen.fencing = l.fencing
    WHERE l.token IS NULL AND l.paused_until_ms IS NULL AND l.waiting_for IS NULL
    FOR NO KEY UPDATE OF l SKIP LOCKED
),
-- include: queue_reserve
,
taken AS (
    UPDATE :"schema".lash_session_leases AS l
    SET fencing = l.fencing + 1, owner_id = $14::text, incarnation_id = $15::text, process = $16::text,
        token = $17::text, claimed_at_ms = clock.now_ms,
        expires_at_ms = least(clock.now_ms, 9223372036854775807 - $20::bigint) + $20::bigint
    FROM free, clock
    WHERE l.session_key = free.session_key AND ($3::text IS NULL OR EXISTS (SELECT 1 FROM reserved))
    RETURNING l.session_key, l.fencing, l.expires_at_ms, l.wake_seq
),
written AS (
    INSERT INTO :"schema".lash_batches (
-- include: queue_new_columns
        ,
        claim_count, claim_id, claim_token, claim_lease_fencing, claim_expires_at_ms
    )
    SELECT
-- include: queue_new_values
        ,
        CASE WHEN taken.fencing IS NULL THEN 0 ELSE 1 END, CASE WHEN taken.fencing IS NOT NULL THEN $18::text END,
        CASE WHEN taken.fencing IS NOT NULL THEN $19::text END, taken.fencing, taken.expires_at_ms
    FROM clock, s
    LEFT JOIN taken ON taken.session_key = s.session_key
    WHERE $3::text IS NULL OR EXISTS (SELECT 1 FROM reserved)
    RETURNING
        session_key, seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count,
        failure_count, priority, payloads
)
SELECT
    row(
        w.seq, w.batch_id, w.source_key, w.delivery, w.slot, w.merge_key, w.available_at_ms, w.enqueued_at_ms,
        w.claim_count, w.failure_count, w.priority, w.payloads
    ),
    clock.now_ms, taken.fencing, s.revision, s.leaf_node_id, taken.wake_seq
FROM clock, s
JOIN written AS w ON w.session_key = s.session_key
LEFT JOIN taken ON taken.session_key = s.session_key;

-- name: queue_known_key
-- The record of a source key, and its batch if it is still queued.
SELECT
    row(k.batch_id, k.content_hash, k.state),
    array(
        SELECT row(
            b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms, b.enqueued_at_ms,
            b.claim_count, b.failure_count, b.priority, b.payloads
        )
        FROM :"schema".lash_batches AS b
        WHERE b.session_key = k.session_key AND b.batch_id = k.batch_id
    )
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_source_keys AS k ON k.session_key = s.session_key
WHERE s.session_id = $1::text AND k.source_key = $2::text;

-- name: queue_promote
-- Makes delayed work ready once it is due; from then on only its position in the queue decides.
UPDATE :"schema".lash_batches
SET available_at_ms = 0
WHERE session_key = $1::bigint AND available_at_ms > 0 AND available_at_ms <= :"schema".lash_now_ms()
RETURNING seq;

-- name: queue_facts
-- The time, the lease and the head of a session's queue: in each lane of $3, which commas separate, the first $4 batches that are ready and not
-- held by a live claim under the lease of fencing number $2, the first such command, and what follows. ORDER BY instead
-- of EXISTS, which may scan the work of all sessions for one batch. A lane is given as a range, an order that only the
-- index on lanes has: by the key of the table the statement would read a whole queue that has nothing in the lane.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms)
SELECT
    s.session_key,
    clock.now_ms,
    row(
        l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms,
        l.paused_until_ms, l.wake_seq, l.waiting_for
    ),
    array(
        SELECT row(c.seq, c.batch_id, c.lane, c.slot, c.merge_key)
        FROM unnest(string_to_array($3::text, ',')) AS wanted (lane)
        CROSS JOIN LATERAL (
            SELECT b.seq, b.batch_id, b.lane, b.slot, b.merge_key
            FROM :"schema".lash_batches AS b
            WHERE b.session_key = s.session_key AND b.lane >= wanted.lane AND b.lane <= wanted.lane
                AND b.available_at_ms = 0
                AND (
                    b.claim_token IS NULL OR b.claim_expires_at_ms <= clock.now_ms
                    OR b.claim_lease_fencing <> $2::bigint
                )
            ORDER BY b.lane, b.seq
            LIMIT $4::bigint
        ) AS c
    ),
    (
        SELECT b.seq FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.lane = 'command' AND b.available_at_ms = 0
            AND (
                b.claim_token IS NULL OR b.claim_expires_at_ms <= clock.now_ms
                OR b.claim_lease_fencing <> $2::bigint
            )
        ORDER BY b.seq
        LIMIT 1
    ),
    (
        SELECT b.seq FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.lane = 'late' AND b.available_at_ms = 0
        ORDER BY b.seq
        LIMIT 1
    ) IS NOT NULL,
    (
        SELECT b.claim_token FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.claim_token IS NOT NULL
        ORDER BY b.claim_token
        LIMIT 1
    ) IS NOT NULL,
    (
        SELECT min(b.available_at_ms) FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.available_at_ms > 0
    )
FROM clock, :"schema".lash_sessions AS s
JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = $1::text;

-- fragment: stamped
-- Returns the time and the batches claimed by an update called stamped, in their order.
    RETURNING
        b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms, b.enqueued_at_ms,
        b.claim_count, b.failure_count, b.priority, b.payloads
)
SELECT
    guard.now_ms,
    array(
        SELECT row(
            t.seq, t.batch_id, t.source_key, t.delivery, t.slot, t.merge_key, t.available_at_ms, t.enqueued_at_ms,
            t.claim_count, t.failure_count, t.priority, t.payloads
        )
        FROM stamped AS t
        ORDER BY t.seq
    )

-- name: queue_stamp
-- Puts a claim on the batches at positions $2, all or none: the lease must be live under the fence ($3 to $6), and
-- every batch must exist and not be held by another live claim. Returns the time and the batches.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
lease AS (
    SELECT l.fencing, l.expires_at_ms
    FROM :"schema".lash_session_leases AS l
    WHERE l.session_key = $1::bigint AND l.owner_id = $3::text AND l.incarnation_id = $4::text
        AND l.token = $5::text AND l.fencing = $6::bigint
    FOR NO KEY UPDATE
),
-- Locked after the lease, as in every statement.
free AS (
    SELECT b.seq
    FROM :"schema".lash_batches AS b, clock
    WHERE EXISTS (SELECT 1 FROM lease) AND b.session_key = $1::bigint AND b.seq = ANY ($2::bigint[])
        AND (
            b.claim_token IS NULL OR b.claim_expires_at_ms <= clock.now_ms OR b.claim_lease_fencing <> $6::bigint
            OR b.claim_token = $8::text
        )
    ORDER BY b.seq
    FOR UPDATE OF b
),
guard AS (
    SELECT clock.now_ms
    FROM clock, lease
    WHERE lease.expires_at_ms > clock.now_ms
        AND (SELECT count(*) FROM free) = cardinality($2::bigint[])
),
stamped AS (
    UPDATE :"schema".lash_batches AS b
    -- A retry after a lost answer finds its own claim, and does not count another attempt.
    SET claim_count = b.claim_count + CASE WHEN b.claim_token = $8::text THEN 0 ELSE 1 END, claim_id = $7::text,
        claim_token = $8::text, claim_lease_fencing = $6::bigint, claim_expires_at_ms = guard.now_ms + $9::bigint
    FROM guard
    WHERE b.session_key = $1::bigint AND b.seq = ANY ($2::bigint[])
-- include: stamped
FROM guard;

-- name: queue_claim_turn
-- Gives the lease to a new holder ($4 to $7) under the fencing number $3, and puts a claim on the batches at positions
-- $2, which commas separate; does all of it or nothing. The previous number must be the last one, its lease free or expired, and every batch
-- must exist. Returns the time, the batches, the revision and the leaf, whether scope $11 has effects, and the number
-- of reasons to continue a turn.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
lease AS (
    SELECT l.session_key
    FROM :"schema".lash_session_leases AS l, clock
    WHERE l.session_key = $1::bigint
        AND (
            (l.fencing = $3::bigint - 1 AND (l.token IS NULL OR l.expires_at_ms <= clock.now_ms))
            -- A retry after a lost answer.
            OR (l.fencing = $3::bigint AND l.token = $7::text)
        )
    FOR NO KEY UPDATE OF l
),
-- Locked after the lease, as in every statement; no claim made under an earlier lease is live.
free AS (
    SELECT b.seq
    FROM :"schema".lash_batches AS b
    WHERE EXISTS (SELECT 1 FROM lease) AND b.session_key = $1::bigint AND b.seq = ANY (string_to_array($2::text, ',')::bigint[])
    ORDER BY b.seq
    FOR UPDATE OF b
),
guard AS (
    SELECT clock.now_ms, least(clock.now_ms, 9223372036854775807 - $10::bigint) + $10::bigint AS expires_at_ms
    FROM clock, lease
    WHERE (SELECT count(*) FROM free) = cardinality(string_to_array($2::text, ',')::bigint[])
),
taken AS (
    UPDATE :"schema".lash_session_leases AS l
    SET fencing = $3::bigint, owner_id = $4::text, incarnation_id = $5::text, process = $6::text, token = $7::text,
        claimed_at_ms = guard.now_ms, expires_at_ms = guard.expires_at_ms,
        paused_until_ms = CASE WHEN l.waiting_for IS NOT NULL THEN 0 END
    FROM guard
    WHERE l.session_key = $1::bigint
    RETURNING l.wake_seq
),
stamped AS (
    UPDATE :"schema".lash_batches AS b
    SET claim_count = b.claim_count + CASE WHEN b.claim_token = $9::text THEN 0 ELSE 1 END, claim_id = $8::text,
        claim_token = $9::text, claim_lease_fencing = $3::bigint, claim_expires_at_ms = guard.expires_at_ms
    FROM guard
    WHERE b.session_key = $1::bigint AND b.seq = ANY (string_to_array($2::text, ',')::bigint[])
-- include: stamped
    ,
    s.revision, s.leaf_node_id,
    EXISTS (SELECT 1 FROM :"schema".lash_effects AS e WHERE e.scope_id = $11::text),
    (SELECT taken.wake_seq FROM taken)
FROM guard
JOIN :"schema".lash_sessions AS s ON s.session_key = $1::bigint;

-- name: queue_extend
-- Moves the expiry of a claim of $3 batches, never to an earlier moment, if it still holds all of them. Returns the
-- expiry; no row if it does not hold them, or if the session does not exist.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text),
held AS (
    SELECT b.seq FROM :"schema".lash_batches AS b, s
    WHERE b.session_key = s.session_key AND b.claim_token = $2::text
    ORDER BY b.seq
    FOR UPDATE OF b
),
extended AS (
    UPDATE :"schema".lash_batches AS b
    SET claim_expires_at_ms = greatest(b.claim_expires_at_ms, :"schema".lash_now_ms() + $4::bigint)
    FROM s
    WHERE b.session_key = s.session_key AND b.claim_token = $2::text
        AND (SELECT count(*) FROM held) = $3::bigint
    RETURNING b.claim_expires_at_ms
)
SELECT min(claim_expires_at_ms) FROM extended HAVING count(*) > 0;

-- name: queue_abandon
-- Releases the batches of a claim, takes back $3 attempts, and counts the batches; no row if the session does not
-- exist.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text),
given_back AS (
    UPDATE :"schema".lash_batches AS b
    SET claim_count = greatest(b.claim_count - $3::bigint, 0),
        failure_count = b.failure_count + 1 - $3::bigint, claim_id = NULL, claim_token = NULL,
        claim_lease_fencing = NULL, claim_expires_at_ms = NULL
    FROM s
    WHERE b.session_key = s.session_key AND b.claim_token = $2::text
    RETURNING 1
)
SELECT (SELECT count(*) FROM given_back) FROM s;

-- name: queue_cancel
-- Removes a batch that no live claim holds, marks its source key as finished and acknowledges its wake; no row if the
-- session does not exist. The lease row is locked, so that no claim is made meanwhile.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
lease AS (
    SELECT l.session_key, l.fencing, l.token
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = $1::text
    FOR NO KEY UPDATE OF l
),
gone AS (
    DELETE FROM :"schema".lash_batches AS b
    USING lease, clock
    WHERE b.session_key = lease.session_key AND b.batch_id = $2::text
        AND (
            b.claim_token IS NULL OR b.claim_expires_at_ms <= clock.now_ms
            OR lease.token IS NULL OR lease.fencing <> b.claim_lease_fencing
        )
    RETURNING
        b.session_key, b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms,
        b.enqueued_at_ms, b.claim_count, b.failure_count, b.priority, b.payloads
),
acknowledged AS (
    UPDATE :"schema".lash_wakes AS w
    SET state = 'acknowledged'
    FROM gone
    WHERE w.batch_id = gone.batch_id AND w.state = 'queued'
),
settled AS (
    UPDATE :"schema".lash_source_keys AS k
    SET state = 'cancelled', settled_at_ms = clock.now_ms
    FROM gone, clock
    WHERE k.session_key = gone.session_key AND k.source_key = gone.source_key
)
SELECT
    lease.session_key,
    array(
        SELECT row(
            g.seq, g.batch_id, g.source_key, g.delivery, g.slot, g.merge_key, g.available_at_ms, g.enqueued_at_ms,
            g.claim_count, g.failure_count, g.priority, g.payloads
        )
        FROM gone AS g
    )
FROM lease;

-- name: queue_page
-- The queued batches of a session after position $2, in order; if $4, only the ones that no live claim holds. No row if
-- the session does not exist.
SELECT
    s.session_key,
    array(
        SELECT row(
            b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms, b.enqueued_at_ms,
            b.claim_count, b.failure_count, b.priority, b.payloads
        )
        FROM :"schema".lash_batches AS b
        WHERE b.session_key = s.session_key AND b.seq > $2::bigint
            AND (
                NOT $4::boolean OR b.claim_token IS NULL OR b.claim_expires_at_ms <= :"schema".lash_now_ms()
                OR l.token IS NULL OR l.fencing <> b.claim_lease_fencing
            )
        ORDER BY b.seq
        LIMIT $3::bigint
    )
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = $1::text;

-- name: queue_ready_agents
-- The agents that have ready or due input: one step through the index per agent. NULL is input for no known agent.
WITH RECURSIVE walk AS (
    SELECT (
        SELECT b.agent FROM :"schema".lash_batches AS b WHERE b.agent IS NOT NULL ORDER BY b.agent LIMIT 1
    ) AS agent
    UNION ALL
    SELECT (SELECT b.agent FROM :"schema".lash_batches AS b WHERE b.agent > w.agent ORDER BY b.agent LIMIT 1)
    FROM walk AS w
    WHERE w.agent IS NOT NULL
)
SELECT w.agent
FROM walk AS w
WHERE CASE
        WHEN w.agent IS NULL THEN (
            SELECT b.seq FROM :"schema".lash_batches AS b
            WHERE b.agent IS NULL AND b.available_at_ms <= :"schema".lash_now_ms()
            ORDER BY b.available_at_ms
            LIMIT 1
        )
        ELSE (
            SELECT b.seq FROM :"schema".lash_batches AS b
            WHERE b.agent = w.agent AND b.available_at_ms <= :"schema".lash_now_ms()
            ORDER BY b.available_at_ms
            LIMIT 1
        )
    END IS NOT NULL
LIMIT $1::bigint;

-- name: queue_ready_sessions
-- Sessions after the given one that have ready work and no live lease: one step through the index per session, not per
-- batch, plus the sessions whose delayed work has been due for longest.
WITH RECURSIVE clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
start AS (
    SELECT coalesce((SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $2::text), 0) AS session_key
),
walk AS (
    SELECT (
        SELECT b.session_key FROM :"schema".lash_batches AS b
        WHERE b.available_at_ms = 0 AND b.session_key > start.session_key
        ORDER BY b.session_key
        LIMIT 1
    ) AS session_key
    FROM start
    UNION ALL
    SELECT (
        SELECT b.session_key FROM :"schema".lash_batches AS b
        WHERE b.available_at_ms = 0 AND b.session_key > w.session_key
        ORDER BY b.session_key
        LIMIT 1
    )
    FROM walk AS w
    WHERE w.session_key IS NOT NULL
),
idle AS (
    SELECT w.session_key
    FROM walk AS w
    WHERE (
        SELECT l.token IS NULL OR l.expires_at_ms <= (SELECT now_ms FROM clock)
        FROM :"schema".lash_session_leases AS l
        WHERE l.session_key = w.session_key
    )
    LIMIT $1::bigint
),
due AS (
    -- Subqueries, not joins: the index then gives the batches in this order, up to now, whatever the statistics are.
    SELECT b.session_key
    FROM :"schema".lash_batches AS b
    WHERE b.available_at_ms > 0 AND b.available_at_ms <= (SELECT now_ms FROM clock)
        AND (
            SELECT l.token IS NULL OR l.expires_at_ms <= (SELECT now_ms FROM clock)
            FROM :"schema".lash_session_leases AS l
            WHERE l.session_key = b.session_key
        )
    ORDER BY b.available_at_ms
    LIMIT $1::bigint
)
SELECT s.session_id
FROM (
    SELECT session_key FROM idle
    UNION
    SELECT session_key FROM due WHERE session_key > (SELECT session_key FROM start)
) AS found
JOIN :"schema".lash_sessions AS s ON s.session_key = found.session_key
ORDER BY s.session_key
LIMIT $1::bigint;
