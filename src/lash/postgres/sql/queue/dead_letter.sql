-- name: dead_letter_of_claim
-- The batches of the ids $2 that died under the claim of token $3.
SELECT d.batch_id
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_dead_letters AS d ON d.session_key = s.session_key
WHERE s.session_id = $1::text AND d.batch_id = ANY ($2::text[]) AND d.claim_token = $3::text;

-- name: dead_letter_bury
-- Moves the batches that the claim of token $2 and id $3 holds to the dead letters, in the order of the queue, if they
-- are exactly the batches $4. Returns what it held; no row if the session does not exist. The lease row is locked as by
-- a commit.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
lease AS (
    SELECT l.session_key
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = $1::text
    FOR NO KEY UPDATE OF l
),
held AS (
    SELECT b.*
    FROM lease
    JOIN :"schema".lash_batches AS b ON b.session_key = lease.session_key
    WHERE b.claim_token = $2::text AND b.claim_id = $3::text
    ORDER BY b.seq
    FOR UPDATE OF b
),
guard AS (
    SELECT clock.now_ms
    FROM clock
    WHERE cardinality($4::text[]) = (SELECT count(*) FROM held)
        AND NOT EXISTS (SELECT 1 FROM held WHERE held.batch_id <> ALL ($4::text[]))
),
buried AS (
    INSERT INTO :"schema".lash_dead_letters (
        session_key, batch_id, seq, source_key, lane, delivery, slot, merge_key, enqueued_at_ms, claim_count,
        failure_count, priority, payloads, agent, names_agent,
        claim_token, reason, error, died_at_ms
    )
    SELECT
        held.session_key, held.batch_id, held.seq, held.source_key, held.lane, held.delivery, held.slot, held.merge_key,
        held.enqueued_at_ms, held.claim_count, held.failure_count, held.priority, held.payloads, held.agent,
        held.names_agent, held.claim_token, $5::text, $6::text, guard.now_ms
    FROM held, guard
    ORDER BY held.seq
),
gone AS (
    DELETE FROM :"schema".lash_batches AS b
    USING held, guard
    WHERE b.session_key = held.session_key AND b.seq = held.seq
)
SELECT array(SELECT held.batch_id FROM held) FROM lease;

-- name: dead_letter_revive
-- Moves a dead letter to the end of the queue, as if it had never been claimed, and returns its batch; no row if the
-- session does not exist. The lock prevents a concurrent deletion of the session; it does not wait for commits.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text FOR KEY SHARE),
gone AS (
    DELETE FROM :"schema".lash_dead_letters AS d
    USING s
    WHERE d.session_key = s.session_key AND d.batch_id = $2::text
    RETURNING d.*
),
revived AS (
    INSERT INTO :"schema".lash_batches (
        session_key, batch_id, source_key, lane, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, priority,
        payloads, agent, names_agent
    )
    SELECT
        gone.session_key, gone.batch_id, gone.source_key, gone.lane, gone.delivery, gone.slot, gone.merge_key, 0,
        gone.enqueued_at_ms, gone.priority, gone.payloads, gone.agent, gone.names_agent
    FROM gone
    RETURNING
        seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count,
        failure_count, priority, payloads
)
SELECT
    s.session_key,
    array(
        SELECT row(
            r.seq, r.batch_id, r.source_key, r.delivery, r.slot, r.merge_key, r.available_at_ms, r.enqueued_at_ms,
            r.claim_count, r.failure_count, r.priority, r.payloads
        )
        FROM revived AS r
    )
FROM s;

-- name: dead_letter_remove
-- Removes a dead letter, marks the source key of its batch as finished, acknowledges its wake, and returns whether the
-- letter existed; no row if the session does not exist.
WITH s AS (SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text),
clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
gone AS (
    DELETE FROM :"schema".lash_dead_letters AS d
    USING s
    WHERE d.session_key = s.session_key AND d.batch_id = $2::text
    RETURNING d.session_key, d.batch_id, d.source_key
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
SELECT EXISTS (SELECT 1 FROM gone) FROM s;

-- name: dead_letter_page
-- The dead letters of all sessions after position $1, in the order in which they died.
SELECT
    d.place, s.session_id, d.seq, d.batch_id, d.source_key, d.delivery, d.slot, d.merge_key, d.enqueued_at_ms,
    d.claim_count, d.failure_count, d.priority, d.payloads, d.reason, d.error, d.died_at_ms
FROM :"schema".lash_dead_letters AS d
JOIN :"schema".lash_sessions AS s ON s.session_key = d.session_key
WHERE d.place + 0 > $1::bigint
ORDER BY d.place + 0
LIMIT $2::bigint;

-- name: dead_letter_page_of_session
-- The dead letters of one session after position $2, in the order in which they died; no row if the session does not
-- exist.
SELECT
    s.session_key,
    array(
        SELECT row(
            d.place, s.session_id, d.seq, d.batch_id, d.source_key, d.delivery, d.slot, d.merge_key, d.enqueued_at_ms,
            d.claim_count, d.failure_count, d.priority, d.payloads, d.reason, d.error, d.died_at_ms
        )
        FROM :"schema".lash_dead_letters AS d
        WHERE d.session_key = s.session_key AND d.place > $2::bigint
        ORDER BY d.place
        LIMIT $3::bigint
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: dead_letter_page_prefix
-- The dead letters after a position of the sessions in a range of ids, in the order in which they died. Each session is
-- looked up by its key: the planner would go through the dead letters of all sessions.
SELECT
    d.place, s.session_id, d.seq, d.batch_id, d.source_key, d.delivery, d.slot, d.merge_key, d.enqueued_at_ms,
    d.claim_count, d.failure_count, d.priority, d.payloads, d.reason, d.error, d.died_at_ms
FROM :"schema".lash_sessions AS s
CROSS JOIN LATERAL (
    SELECT * FROM :"schema".lash_dead_letters AS d
    WHERE d.session_key = s.session_key AND d.place > $1::bigint
    ORDER BY d.place
    LIMIT $2::bigint
) AS d
WHERE s.session_id COLLATE "C" >= $3::text AND s.session_id COLLATE "C" < $4::text
ORDER BY d.place
LIMIT $2::bigint;
