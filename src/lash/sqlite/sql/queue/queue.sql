-- name: queue_reserve_key
-- Reserves a source key for a new batch; does nothing if it was used before, or if there is no such session.
INSERT INTO lash_source_keys (session_key, source_key, batch_id, content_hash, state)
SELECT s.session_key, :source_key, :batch_id, :content_hash, 'pending'
FROM lash_sessions AS s
WHERE s.session_id = :session_id
ON CONFLICT (session_key, source_key) DO NOTHING
RETURNING session_key;

-- name: queue_known_key
-- The record of a source key.
SELECT batch_id, content_hash, state
FROM lash_source_keys
WHERE session_key = :session_key AND source_key = :source_key;

-- name: queue_insert
-- Adds a batch to the end of the queue, with a claim on it if one is given.
INSERT INTO lash_batches (
    session_key, batch_id, source_key, lane, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, payloads,
    wake_session_id, priority, agent, names_agent, claim_count, claim_id, claim_token, claim_lease_fencing,
    claim_expires_at_ms
)
VALUES (
    :session_key, :batch_id, :source_key, :lane, :delivery, :slot, :merge_key,
    CASE WHEN :available_at_ms > :now_ms THEN :available_at_ms ELSE 0 END, :now_ms, :payloads, :wake_session_id, :priority,
    COALESCE(:agent, (SELECT s.agent FROM lash_sessions AS s WHERE s.session_key = :session_key)), :agent IS NOT NULL,
    :claim_id IS NOT NULL, :claim_id, :claim_token, :claim_lease_fencing, :claim_expires_at_ms
)
RETURNING
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads;

-- name: queue_batch
-- One batch by its id.
SELECT
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads
FROM lash_batches
WHERE session_key = :session_key AND batch_id = :batch_id;

-- name: queue_promote
-- Makes delayed work ready once it is due; from then on only its position in the queue decides.
UPDATE lash_batches
SET available_at_ms = 0
WHERE session_key = :session_key AND available_at_ms > 0 AND available_at_ms <= :now_ms;

-- fragment: queue_candidate
-- The first batches of a lane that are ready and that no live claim holds.
        SELECT c.seq
        FROM lash_batches AS c INDEXED BY lash_batches_ready
        WHERE c.session_key = s.session_key AND c.available_at_ms = 0
            AND (
                c.claim_token IS NULL OR c.claim_expires_at_ms <= :now_ms OR c.claim_lease_fencing <> :lease_fencing
            )

-- name: queue_head
-- A session with its lease, and its queue in short: whether late work is ready, whether anything is claimed, and when
-- the next delayed batch becomes available. Then the first batches of the lanes that are ready and that no live claim
-- holds, each in a row of its own: one command, and so many of each other lane. Without such a batch there is one row.
SELECT
    s.session_key, s.revision, s.leaf_node_id,
    EXISTS (
        SELECT 1 FROM lash_batches AS b INDEXED BY lash_batches_ready
        WHERE b.session_key = s.session_key AND b.lane = 'late' AND b.available_at_ms = 0
    ),
    EXISTS (
        SELECT 1 FROM lash_batches AS b INDEXED BY lash_batches_claim
        WHERE b.session_key = s.session_key AND b.claim_token IS NOT NULL
    ),
    (
        SELECT MIN(b.available_at_ms) FROM lash_batches AS b INDEXED BY lash_batches_delayed
        WHERE b.session_key = s.session_key AND b.available_at_ms > 0
    ),
    l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms, l.paused_until_ms,
    l.wake_seq, l.waiting_for, b.seq, b.batch_id, b.lane, b.slot, b.merge_key
FROM lash_sessions AS s
CROSS JOIN lash_session_leases AS l ON l.session_key = s.session_key
LEFT JOIN lash_batches AS b ON b.seq IN (
    SELECT seq FROM (
-- include: queue_candidate
            AND c.lane = 'command'
        ORDER BY c.seq
        LIMIT 1
    )
    UNION ALL
    SELECT seq FROM (
-- include: queue_candidate
            AND c.lane = 'early'
        ORDER BY c.seq
        LIMIT :early
    )
    UNION ALL
    SELECT seq FROM (
-- include: queue_candidate
            AND c.lane = 'late'
        ORDER BY c.seq
        LIMIT :late
    )
)
WHERE s.session_id = :session_id;

-- name: queue_stamp
-- Puts a claim on batches (a JSON array of their positions), and returns them in any order, each with whether the scope
-- has effects.
UPDATE lash_batches
SET claim_count = claim_count + 1, claim_id = :claim_id, claim_token = :claim_token,
    claim_lease_fencing = :lease_fencing, claim_expires_at_ms = :expires_at_ms
WHERE seq IN (SELECT value FROM json_each(:seqs))
RETURNING
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads, EXISTS (SELECT 1 FROM lash_effects AS e WHERE e.scope_id = :scope_id);

-- name: queue_extend
-- Extends a claim that still holds as many batches as it was made for, never to an earlier moment. Returns the expiry
-- of each batch.
UPDATE lash_batches
SET claim_expires_at_ms = MAX(claim_expires_at_ms, :expires_at_ms)
WHERE session_key = :session_key AND claim_token = :claim_token
    AND (
        SELECT COUNT(*) FROM lash_batches AS held
        WHERE held.session_key = :session_key AND held.claim_token = :claim_token
    ) = :count
RETURNING claim_expires_at_ms;

-- name: queue_extend_under_lease
-- Moves the expiry of every claim made under a lease, never to an earlier moment.
UPDATE lash_batches
SET claim_expires_at_ms = MAX(claim_expires_at_ms, :expires_at_ms)
WHERE session_key = (SELECT session_key FROM lash_sessions WHERE session_id = :session_id)
    AND claim_token IS NOT NULL AND claim_lease_fencing = :fencing;

-- name: queue_abandon
-- Releases the batches of a claim after a failed attempt, or takes back the one attempt that does not count.
UPDATE lash_batches
SET claim_count = MAX(claim_count - :uncounted, 0), failure_count = failure_count + 1 - :uncounted, claim_id = NULL,
    claim_token = NULL, claim_lease_fencing = NULL, claim_expires_at_ms = NULL
WHERE session_key = :session_key AND claim_token = :claim_token;

-- name: queue_cancel
-- Removes a batch that no live claim holds.
DELETE FROM lash_batches
WHERE session_key = :session_key AND batch_id = :batch_id
    AND NOT EXISTS (
        SELECT 1 FROM lash_session_leases AS l
        WHERE l.session_key = lash_batches.session_key AND l.token IS NOT NULL
            AND l.fencing = lash_batches.claim_lease_fencing AND lash_batches.claim_expires_at_ms > :now_ms
    )
RETURNING
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads;

-- name: queue_finish_key
-- Records what became of the batch of a source key.
UPDATE lash_source_keys
SET state = :state, settled_at_ms = :now_ms
WHERE session_key = :session_key AND source_key = :source_key;

-- name: queue_page
-- The queued batches of a session, in order.
SELECT
    seq, batch_id, source_key, delivery, slot, merge_key, available_at_ms, enqueued_at_ms, claim_count, failure_count,
    priority, payloads
FROM lash_batches
WHERE session_key = :session_key AND seq > :after_seq
ORDER BY seq
LIMIT :limit;

-- name: queue_page_pending
-- The queued batches of a session that no live claim holds, in order.
SELECT
    b.seq, b.batch_id, b.source_key, b.delivery, b.slot, b.merge_key, b.available_at_ms, b.enqueued_at_ms,
    b.claim_count, b.failure_count, b.priority, b.payloads
FROM lash_batches AS b
JOIN lash_session_leases AS l ON l.session_key = b.session_key
WHERE b.session_key = :session_key AND b.seq > :after_seq
    AND (
        b.claim_token IS NULL OR b.claim_expires_at_ms <= :now_ms
        OR l.token IS NULL OR l.fencing <> b.claim_lease_fencing
    )
ORDER BY b.seq
LIMIT :limit;

-- name: queue_ready_agents
-- The agents that have ready or due input: one step through the index per agent. NULL is input for no known agent.
WITH RECURSIVE walk (agent) AS (
    SELECT MIN(agent) FROM lash_batches INDEXED BY lash_batches_agent
    UNION ALL
    SELECT (SELECT MIN(b.agent) FROM lash_batches AS b INDEXED BY lash_batches_agent WHERE b.agent > w.agent)
    FROM walk AS w
    WHERE w.agent IS NOT NULL
)
SELECT w.agent
FROM walk AS w
WHERE EXISTS (
    SELECT 1 FROM lash_batches AS b INDEXED BY lash_batches_agent
    WHERE b.agent IS w.agent AND b.available_at_ms <= :now_ms
)
LIMIT :limit;

-- name: queue_ready_sessions
-- Sessions after the given one that have ready work and no live lease: one step through the index per session, not per
-- batch, plus the sessions whose delayed work has been due for longest.
WITH RECURSIVE start (session_key) AS (
    SELECT COALESCE((SELECT session_key FROM lash_sessions WHERE session_id = :after), 0)
),
walk (session_key) AS (
    SELECT MIN(session_key) FROM lash_batches INDEXED BY lash_batches_ready
    WHERE available_at_ms = 0 AND session_key > (SELECT session_key FROM start)
    UNION ALL
    SELECT (
        SELECT MIN(b.session_key) FROM lash_batches AS b INDEXED BY lash_batches_ready
        WHERE b.available_at_ms = 0 AND b.session_key > w.session_key
    )
    FROM walk AS w
    WHERE w.session_key IS NOT NULL
),
due (session_key) AS (
    SELECT b.session_key
    FROM lash_batches AS b INDEXED BY lash_batches_due
    CROSS JOIN lash_session_leases AS l ON l.session_key = b.session_key
    WHERE b.available_at_ms > 0 AND b.available_at_ms <= :now_ms
        AND (l.token IS NULL OR l.expires_at_ms <= :now_ms)
    ORDER BY b.available_at_ms
    LIMIT :limit
),
idle (session_key) AS (
    SELECT w.session_key
    FROM walk AS w
    CROSS JOIN lash_session_leases AS l ON l.session_key = w.session_key
    WHERE l.token IS NULL OR l.expires_at_ms <= :now_ms
    LIMIT :limit
)
SELECT s.session_id
FROM (
    SELECT session_key FROM idle
    UNION
    SELECT session_key FROM due WHERE session_key > (SELECT session_key FROM start)
) AS found
CROSS JOIN lash_sessions AS s ON s.session_key = found.session_key
ORDER BY s.session_key
LIMIT :limit;
