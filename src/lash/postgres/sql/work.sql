-- fragment: work_of_free_sessions
-- Of some batches b those whose session has no live lease, no pause, and all labels of $12, a JSON object.
    CROSS JOIN LATERAL (
        SELECT l.token, l.expires_at_ms, l.paused_until_ms
        FROM :"schema".lash_session_leases AS l
        WHERE l.session_key = b.session_key
        LIMIT 1
    ) AS l
    WHERE (l.token IS NULL OR l.expires_at_ms <= (SELECT now_ms FROM clock))
        AND (l.paused_until_ms IS NULL OR l.paused_until_ms <= (SELECT now_ms FROM clock))
        AND CASE WHEN $12::json IS NULL THEN true ELSE NOT EXISTS (
            SELECT 1 FROM json_each_text($12::json) AS wanted
            WHERE wanted.value IS DISTINCT FROM (
                SELECT x.value FROM :"schema".lash_session_labels AS x
                WHERE x.session_key = b.session_key AND x.key = wanted.key
            )
        ) END

-- fragment: work_of_labelled_processes
-- Of some processes q those whose session has all labels of $12.
            AND CASE WHEN $12::json IS NULL THEN true ELSE NOT EXISTS (
                SELECT 1 FROM json_each_text($12::json) AS wanted
                WHERE wanted.value IS DISTINCT FROM (
                    SELECT x.value
                    FROM :"schema".lash_sessions AS s
                    JOIN :"schema".lash_session_labels AS x ON x.session_key = s.session_key
                    WHERE s.session_id = q.wake_session_id AND x.key = wanted.key
                )
            ) END

-- fragment: work_lists
-- The lists that a poll chooses from. The cost depends neither on how much is queued nor on how many processes are
-- parked: times are compared with a single value and rows are joined one by one, so that the planner has to use the
-- index of each list. With labels, each list reads a bounded part of the work of other sessions: parts that are long are
-- read from a place between the first and the last session with ready work, which $13, from 0 to 1, chooses.
WITH RECURSIVE clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- The sessions with the most urgent ready work. This and the next two lists read up to 256 batches more than they
-- need: those of running and of paused sessions are left out, and those of other agents than $11.
urgent AS (
    SELECT b.session_key, b.priority, b.seq
    FROM (
        SELECT b.session_key, b.priority, b.agent, b.seq - 0 AS seq
        FROM :"schema".lash_batches AS b
        WHERE b.available_at_ms = 0 AND b.priority > 0
        ORDER BY b.priority DESC, b.seq - 0
        LIMIT $1::bigint + 256
    ) AS b
-- include: work_of_free_sessions
        AND ($11::text[] IS NULL OR b.agent = ANY ($11::text[]))
    LIMIT $1::bigint
),
-- The sessions whose ready work arrived first, if the caller takes all agents.
arrived AS MATERIALIZED (
    SELECT b.session_key, b.seq
    FROM (
        SELECT b.session_key, b.seq - 0 AS seq
        FROM :"schema".lash_batches AS b
        WHERE b.available_at_ms = 0 AND $11::text[] IS NULL
        ORDER BY b.seq - 0
        LIMIT $1::bigint + 256
    ) AS b
-- include: work_of_free_sessions
    LIMIT $1::bigint
),
-- The sessions whose ready work arrived last.
newest AS (
    SELECT b.session_key, b.seq
    FROM (
        SELECT b.session_key, b.priority, b.agent, b.seq - 0 AS seq
        FROM :"schema".lash_batches AS b
        WHERE b.available_at_ms = 0
        ORDER BY b.seq - 0 DESC
        LIMIT $1::bigint + 256
    ) AS b
-- include: work_of_free_sessions
        AND ($11::text[] IS NULL OR b.agent = ANY ($11::text[]))
    LIMIT ($1::bigint + 3) / 4
),
-- Where the walks begin: at the first session without labels.
place AS MATERIALIZED (
    SELECT CASE WHEN $12::json IS NULL THEN 0 ELSE coalesce(
        (
            SELECT b.session_key FROM :"schema".lash_batches AS b
            WHERE b.available_at_ms = 0
            ORDER BY b.session_key
            LIMIT 1
        ) * (1 - $13::float8) + $13::float8 * (
            SELECT b.session_key FROM :"schema".lash_batches AS b
            WHERE b.available_at_ms = 0
            ORDER BY b.session_key DESC
            LIMIT 1
        ),
        0
    )::bigint END AS session_key
),
-- One step through the index per session that has ready work, not per batch.
walk AS (
    SELECT (
        SELECT b.session_key FROM :"schema".lash_batches AS b
        WHERE b.available_at_ms = 0 AND b.session_key >= (SELECT place.session_key FROM place)
        ORDER BY b.session_key
        LIMIT 1
    ) AS session_key
    WHERE $11::text[] IS NULL AND (SELECT count(DISTINCT arrived.session_key) FROM arrived) < $1::bigint
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
-- The same per session that has ready work for one of the agents.
agent_walk AS (
    SELECT
        wanted.agent,
        (
            SELECT b.session_key FROM :"schema".lash_batches AS b
            WHERE b.agent = wanted.agent AND b.available_at_ms = 0
                AND b.session_key >= (SELECT place.session_key FROM place)
            ORDER BY b.agent, b.available_at_ms, b.session_key
            LIMIT 1
        ) AS session_key
    FROM unnest($11::text[]) AS wanted (agent)
    WHERE $1::bigint > 0
    UNION ALL
    SELECT
        w.agent,
        (
            SELECT b.session_key FROM :"schema".lash_batches AS b
            WHERE b.agent = w.agent AND b.available_at_ms = 0 AND b.session_key > w.session_key
            ORDER BY b.agent, b.available_at_ms, b.session_key
            LIMIT 1
        )
    FROM agent_walk AS w
    WHERE w.session_key IS NOT NULL
),
-- Sessions with the first of the labels, from a place among them on, that have ready or due work.
labelled AS (
    SELECT x.session_key
    FROM (SELECT wanted.key, wanted.value FROM json_each_text($12::json) AS wanted LIMIT 1) AS lead
    CROSS JOIN LATERAL (
        SELECT x.session_key FROM :"schema".lash_session_labels AS x
        WHERE x.key = lead.key AND x.value = lead.value
            AND x.session_key >= $13::float8 * (
                SELECT y.session_key FROM :"schema".lash_session_labels AS y
                WHERE y.key = lead.key AND y.value = lead.value
                ORDER BY y.key, y.value, y.session_key DESC
                LIMIT 1
            )
        ORDER BY x.key, x.value, x.session_key
        LIMIT 1024
    ) AS x
    WHERE (
            SELECT b.seq FROM :"schema".lash_batches AS b
            WHERE b.session_key = x.session_key AND b.available_at_ms = 0
                AND ($11::text[] IS NULL OR b.agent = ANY ($11::text[]))
            LIMIT 1
        ) IS NOT NULL
        OR (
            SELECT b.seq FROM :"schema".lash_batches AS b
            WHERE b.session_key = x.session_key AND b.available_at_ms > 0
                AND b.available_at_ms <= (SELECT now_ms FROM clock)
                AND ($11::text[] IS NULL OR b.agent = ANY ($11::text[]))
            LIMIT 1
        ) IS NOT NULL
),
-- The oldest sessions with ready work, if the first batches are of too few sessions, or if the caller takes some agents.
aged AS (
    SELECT b.session_key
    FROM (
        SELECT labelled.session_key FROM labelled
        UNION ALL
        (SELECT walk.session_key FROM walk LIMIT CASE WHEN $12::json IS NULL THEN NULL ELSE 1024 END)
        UNION ALL
        (SELECT agent_walk.session_key FROM agent_walk LIMIT CASE WHEN $12::json IS NULL THEN NULL ELSE 1024 END)
    ) AS b
-- include: work_of_free_sessions
    LIMIT $1::bigint
),
-- The sessions whose delayed work has been due for longest.
due AS (
    SELECT b.session_key, b.available_at_ms
    FROM :"schema".lash_batches AS b
-- include: work_of_free_sessions
        AND $11::text[] IS NULL AND $12::json IS NULL
        AND b.available_at_ms > 0 AND b.available_at_ms <= (SELECT now_ms FROM clock)
    ORDER BY b.available_at_ms
    LIMIT $1::bigint
),
agent_due AS (
    SELECT found.session_key, found.available_at_ms
    FROM unnest($11::text[]) AS wanted (agent)
    CROSS JOIN LATERAL (
        SELECT b.session_key, b.available_at_ms
        FROM :"schema".lash_batches AS b
-- include: work_of_free_sessions
            AND b.agent = wanted.agent AND b.available_at_ms > 0
            AND b.available_at_ms <= (SELECT now_ms FROM clock)
        ORDER BY b.agent, b.available_at_ms
        LIMIT $1::bigint
    ) AS found
    WHERE $12::json IS NULL
),
label_due AS (
    SELECT b.session_key, b.available_at_ms
    FROM (
        SELECT b.session_key, b.available_at_ms, b.agent FROM :"schema".lash_batches AS b
        WHERE $12::json IS NOT NULL AND b.available_at_ms > 0 AND b.available_at_ms <= (SELECT now_ms FROM clock)
        ORDER BY b.available_at_ms
        LIMIT 1024
    ) AS b
-- include: work_of_free_sessions
        AND ($11::text[] IS NULL OR b.agent = ANY ($11::text[]))
    LIMIT $1::bigint
),
-- The sessions whose parked turn has been ready for longest.
parked AS (
    SELECT l.session_key, l.paused_until_ms
    FROM :"schema".lash_session_leases AS l
    WHERE l.waiting_for IS NOT NULL AND l.paused_until_ms <= (SELECT now_ms FROM clock)
        AND (l.token IS NULL OR l.expires_at_ms <= (SELECT now_ms FROM clock))
        AND CASE WHEN $11::text[] IS NULL THEN true ELSE coalesce(
            (
                SELECT b.agent FROM :"schema".lash_batches AS b
                WHERE b.session_key = l.session_key AND b.available_at_ms = 9223372036854775807
                LIMIT 1
            ),
            (SELECT s.agent FROM :"schema".lash_sessions AS s WHERE s.session_key = l.session_key)
        ) = ANY ($11::text[]) END
        AND CASE WHEN $12::json IS NULL THEN true ELSE NOT EXISTS (
            SELECT 1 FROM json_each_text($12::json) AS wanted
            WHERE wanted.value IS DISTINCT FROM (
                SELECT x.value FROM :"schema".lash_session_labels AS x
                WHERE x.session_key = l.session_key AND x.key = wanted.key
            )
        ) END
    ORDER BY l.paused_until_ms
    LIMIT $1::bigint
),
-- Ready and free processes that are not bound to another owner.
free AS (
    SELECT p.process_id, l.ready_at_ms, l.process_key
    FROM :"schema".lash_process_leases AS l
    CROSS JOIN LATERAL (
        SELECT q.process_id
        FROM :"schema".lash_processes AS q
        WHERE q.process_key = l.process_key
            AND ($10::text[] IS NULL OR q.label = ANY ($10::text[]))
-- include: work_of_labelled_processes
            AND CASE
                WHEN q.recovery <> 'owner_bound' OR q.projection::json #>> '{started_by}' IS NULL THEN true
                ELSE q.projection::json #>> '{started_by,owner_id}' = $3::text
                    AND q.projection::json #>> '{started_by,incarnation_id}' = $4::text
            END
        LIMIT 1
    ) AS p
    WHERE l.ready_at_ms IS NOT NULL AND l.token IS NULL AND l.ready_at_ms <= (SELECT now_ms FROM clock)
    ORDER BY l.ready_at_ms, l.process_key
    LIMIT $2::bigint
),
-- Ready processes whose lease expired.
lapsed AS (
    SELECT p.process_id, l.ready_at_ms, l.process_key
    FROM :"schema".lash_process_leases AS l
    CROSS JOIN LATERAL (
        SELECT q.process_id
        FROM :"schema".lash_processes AS q
        WHERE q.process_key = l.process_key
            AND ($10::text[] IS NULL OR q.label = ANY ($10::text[]))
-- include: work_of_labelled_processes
            AND CASE
                WHEN q.recovery <> 'owner_bound' THEN true
                ELSE q.projection::json #>> '{started_by,owner_id}' = $3::text
                    AND q.projection::json #>> '{started_by,incarnation_id}' = $4::text
            END
        LIMIT 1
    ) AS p
    WHERE l.ready_at_ms IS NOT NULL AND l.token IS NOT NULL AND l.expires_at_ms <= (SELECT now_ms FROM clock)
    ORDER BY l.expires_at_ms, l.process_key
    LIMIT $2::bigint
),
chosen AS (
    SELECT found.process_id, found.ready_at_ms, found.process_key
    FROM (SELECT * FROM free UNION ALL SELECT * FROM lapsed) AS found
    ORDER BY found.ready_at_ms, found.process_key
    LIMIT $2::bigint
),
-- The incarnations on the boot of the caller's machine that hold sessions, and the ones that hold processes: one step
-- through the index per incarnation.
session_holders AS (
    SELECT (
        SELECT l.incarnation_id FROM :"schema".lash_session_leases AS l
        WHERE l.process IS NOT NULL AND l.process::json ->> 'boot_id' = $5::text
        ORDER BY l.process::json ->> 'boot_id', l.incarnation_id
        LIMIT 1
    ) AS incarnation_id
    WHERE $1::bigint > 0
    UNION ALL
    SELECT (
        SELECT l.incarnation_id FROM :"schema".lash_session_leases AS l
        WHERE l.process IS NOT NULL AND l.process::json ->> 'boot_id' = $5::text
            AND l.incarnation_id > h.incarnation_id
        ORDER BY l.process::json ->> 'boot_id', l.incarnation_id
        LIMIT 1
    )
    FROM session_holders AS h
    WHERE h.incarnation_id IS NOT NULL
),
process_holders AS (
    SELECT (
        SELECT l.incarnation_id FROM :"schema".lash_process_leases AS l
        WHERE l.process IS NOT NULL AND l.process::json ->> 'boot_id' = $5::text
        ORDER BY l.process::json ->> 'boot_id', l.incarnation_id
        LIMIT 1
    ) AS incarnation_id
    WHERE $2::bigint > 0
    UNION ALL
    SELECT (
        SELECT l.incarnation_id FROM :"schema".lash_process_leases AS l
        WHERE l.process IS NOT NULL AND l.process::json ->> 'boot_id' = $5::text
            AND l.incarnation_id > h.incarnation_id
        ORDER BY l.process::json ->> 'boot_id', l.incarnation_id
        LIMIT 1
    )
    FROM process_holders AS h
    WHERE h.incarnation_id IS NOT NULL
)

-- fragment: work_found
-- What a poll returns.
SELECT
    (SELECT now_ms FROM clock),
    array(
        SELECT s.session_id
        FROM urgent AS found
        JOIN :"schema".lash_sessions AS s ON s.session_key = found.session_key
        ORDER BY found.priority DESC, found.seq
    ),
    array(
        SELECT s.session_id
        FROM (
            SELECT due.session_key, due.available_at_ms AS place FROM due
            UNION ALL
            SELECT agent_due.session_key, agent_due.available_at_ms FROM agent_due
            UNION ALL
            SELECT label_due.session_key, label_due.available_at_ms FROM label_due
            UNION ALL
            SELECT parked.session_key, parked.paused_until_ms FROM parked
        ) AS found
        JOIN :"schema".lash_sessions AS s ON s.session_key = found.session_key
        ORDER BY found.place, found.session_key
    ),
    array(
        SELECT s.session_id
        FROM (
            SELECT 0 AS part, arrived.session_key, arrived.seq AS place FROM arrived
            UNION ALL
            SELECT 1, aged.session_key, aged.session_key FROM aged
        ) AS found
        JOIN :"schema".lash_sessions AS s ON s.session_key = found.session_key
        ORDER BY found.part, found.place
    ),
    array(
        SELECT s.session_id
        FROM newest AS found
        JOIN :"schema".lash_sessions AS s ON s.session_key = found.session_key
        ORDER BY found.seq DESC
    ),
    array(SELECT chosen.process_id FROM chosen ORDER BY chosen.ready_at_ms, chosen.process_key),
    -- Commands that are ready, or delayed and due, and that no live claim holds.
    array(
        SELECT s.session_id
        FROM unnest($7::text[]) AS wanted (session_id)
        JOIN :"schema".lash_sessions AS s ON s.session_id = wanted.session_id
        JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
        WHERE (
                SELECT b.seq FROM :"schema".lash_batches AS b
                WHERE b.session_key = s.session_key AND b.lane = 'command' AND b.available_at_ms = 0
                    AND (
                        b.claim_token IS NULL OR b.claim_expires_at_ms <= (SELECT now_ms FROM clock)
                        OR l.token IS NULL OR l.fencing <> b.claim_lease_fencing
                    )
                ORDER BY b.seq
                LIMIT 1
            ) IS NOT NULL
            OR (
                SELECT b.seq FROM :"schema".lash_batches AS b
                WHERE b.session_key = s.session_key AND b.available_at_ms > 0
                    AND b.available_at_ms <= (SELECT now_ms FROM clock) AND b.lane = 'command'
                ORDER BY b.available_at_ms
                LIMIT 1
            ) IS NOT NULL
    ),
    array(
        SELECT p.process_id
        FROM unnest($8::text[]) AS wanted (process_id)
        JOIN :"schema".lash_processes AS p ON p.process_id = wanted.process_id
        WHERE (
            SELECT e.sequence FROM :"schema".lash_process_events AS e
            WHERE e.process_key = p.process_key AND e.event_type = 'process.cancel_requested'
            ORDER BY e.sequence
            LIMIT 1
        ) IS NOT NULL
    ),
    array(
        SELECT row(
            s.session_id, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
        )
        FROM (
            SELECT h.incarnation_id FROM session_holders AS h WHERE h.incarnation_id <> $4::text LIMIT $9::bigint
        ) AS other
        CROSS JOIN LATERAL (
            SELECT t.*
            FROM :"schema".lash_session_leases AS t
            WHERE t.process IS NOT NULL AND t.process::json ->> 'boot_id' = $5::text
                AND t.incarnation_id = other.incarnation_id
                AND t.process::json ->> 'host_id' = $6::text AND t.expires_at_ms > (SELECT now_ms FROM clock)
            LIMIT $1::bigint
        ) AS l
        JOIN :"schema".lash_sessions AS s ON s.session_key = l.session_key
    ),
    array(
        SELECT row(
            p.process_id, l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms
        )
        FROM (
            SELECT h.incarnation_id FROM process_holders AS h WHERE h.incarnation_id <> $4::text LIMIT $9::bigint
        ) AS other
        CROSS JOIN LATERAL (
            SELECT t.*
            FROM :"schema".lash_process_leases AS t
            WHERE t.process IS NOT NULL AND t.process::json ->> 'boot_id' = $5::text
                AND t.incarnation_id = other.incarnation_id
                AND t.process::json ->> 'host_id' = $6::text AND t.expires_at_ms > (SELECT now_ms FROM clock)
                AND t.runnable
            LIMIT $2::bigint
        ) AS l
        JOIN :"schema".lash_processes AS p ON p.process_key = l.process_key
    ),
    -- The next moment at which something becomes ready without a write, one line per kind.
    least(
        (
            SELECT min(b.available_at_ms) FROM :"schema".lash_batches AS b
            WHERE b.available_at_ms > 0 AND b.available_at_ms > (SELECT now_ms FROM clock)
        ),
        (
            SELECT min(l.ready_at_ms) FROM :"schema".lash_process_leases AS l
            WHERE l.ready_at_ms > (SELECT now_ms FROM clock) AND l.token IS NULL
        ),
        (
            SELECT min(l.paused_until_ms) FROM :"schema".lash_session_leases AS l
            WHERE l.paused_until_ms > (SELECT now_ms FROM clock)
        )
    ),
    -- The moment at which the first schedule, deadline of a wait or line of a limit is due; it may have passed.
    least(
        (SELECT min(s.next_fire_ms) FROM :"schema".lash_schedules AS s WHERE s.next_fire_ms IS NOT NULL),
        (
            SELECT min(w.deadline_ms) FROM :"schema".lash_waits AS w
            WHERE w.resolution IS NULL AND w.deadline_ms IS NOT NULL
        ),
        (SELECT min(c.check_at_ms) FROM :"schema".lash_limit_lines AS c WHERE c.check_at_ms IS NOT NULL)
    ),
    -- The last migration, which another program may have applied.
    (SELECT max(m.number) FROM :"schema".lash_migrations AS m),
    -- Whether there are reasons to continue turns that were not counted yet.
    EXISTS (SELECT 1 FROM :"schema".lash_session_wakes),

-- fragment: work_rows
-- The rows that a claim reads.
    -- The rows of the processes that the caller is about to claim, so that the claim needs no read; not the long ones.
    array(
        SELECT row(
            p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
            p.last_sequence, p.created_at_ms, p.updated_at_ms
        )
        FROM (SELECT * FROM chosen ORDER BY chosen.ready_at_ms, chosen.process_key LIMIT 128) AS c
        CROSS JOIN LATERAL (
            SELECT q.* FROM :"schema".lash_processes AS q
            WHERE q.process_key = c.process_key AND octet_length(q.registration) <= 4096
            LIMIT 1
        ) AS p
    )

-- name: work_poll
-- Everything that a worker polls for, at one moment.
-- include: work_lists
-- include: work_found
    NULL,
-- include: work_rows
;

-- name: work_beat
-- The same with a beat ($14, the row of the worker as a JSON object): registers the worker or shows that it lives,
-- removes workers that missed too many beats, and returns the place of the worker among the others: workers that take
-- all work come first, then the order of their start decides. What an operator decided about it stays. The statement sees the rows from before its own writes.
-- include: work_lists
, beat AS (
    SELECT b.*
    FROM json_to_record($14::json) AS b (
        worker_id text, owner_id text, host text, pid bigint, process text, boot_id text, version text, beat_ms bigint,
        session_slots bigint, process_slots bigint, free_sessions bigint, free_processes bigint, agents text,
        processes text, labels text, channel text, status text
    )
),
written AS (
    INSERT INTO :"schema".lash_workers AS w (
        worker_id, owner_id, host, pid, process, boot_id, version, started_at_ms, seen_at_ms, beat_ms, session_slots,
        process_slots, free_sessions, free_processes, agents, processes, labels, channel, status
    )
    SELECT
        b.worker_id, b.owner_id, b.host, b.pid, b.process, b.boot_id, b.version, c.now_ms, c.now_ms, b.beat_ms, b.session_slots,
        b.process_slots, b.free_sessions, b.free_processes, b.agents, b.processes, b.labels, b.channel, b.status
    FROM beat AS b CROSS JOIN clock AS c
    ON CONFLICT (worker_id) DO UPDATE SET
        seen_at_ms = excluded.seen_at_ms, beat_ms = excluded.beat_ms, session_slots = excluded.session_slots,
        free_sessions = excluded.free_sessions, free_processes = excluded.free_processes,
        channel = excluded.channel
    RETURNING
        w.worker_id, w.started_at_ms, w.status, w.agents, w.labels,
        w.agents IS NOT NULL OR w.processes IS NOT NULL OR w.labels IS NOT NULL OR w.session_slots = 0
            OR w.process_slots = 0 AS is_partial
),
others AS MATERIALIZED (
    SELECT
        o.worker_id, o.owner_id, o.process, o.boot_id, o.status, o.started_at_ms, o.agents, o.labels, o.session_slots,
        o.agents IS NOT NULL OR o.processes IS NOT NULL OR o.labels IS NOT NULL OR o.session_slots = 0
            OR o.process_slots = 0 AS is_partial,
        o.seen_at_ms + $15::bigint * o.beat_ms >= c.now_ms AS live,
        o.seen_at_ms + $16::bigint * o.beat_ms < c.now_ms AS gone
    FROM :"schema".lash_workers AS o CROSS JOIN clock AS c
    WHERE o.worker_id <> $4::text
),
-- A row that another beat removes, or its own worker writes, is left to them.
removed AS (
    DELETE FROM :"schema".lash_workers AS w
    WHERE w.worker_id = ANY (array(
        SELECT g.worker_id FROM :"schema".lash_workers AS g
        WHERE g.worker_id = ANY (array(SELECT o.worker_id FROM others AS o WHERE o.gone))
        FOR UPDATE SKIP LOCKED
    ))
)
-- include: work_found
    (
        SELECT row(
            (SELECT count(*) FROM others AS o WHERE o.live),
            (
                SELECT count(*) FROM others AS o
                WHERE o.live AND o.status = 'active'
                    AND (o.is_partial, o.started_at_ms, o.worker_id) < (w.is_partial, w.started_at_ms, w.worker_id)
            ),
            w.status,
            array(
                SELECT row(o.owner_id, o.worker_id, o.process)
                FROM others AS o
                WHERE NOT o.gone AND o.boot_id = $5::text
                ORDER BY o.started_at_ms, o.worker_id
            ),
            array(
                SELECT o.worker_id
                FROM others AS o
                WHERE o.live AND o.status = 'active' AND o.session_slots > 0
                    AND o.agents IS NOT DISTINCT FROM w.agents AND o.labels IS NOT DISTINCT FROM w.labels
            )
        )
        FROM written AS w
    ),
-- include: work_rows
;

-- name: work_wake_sessions
-- Removes at most $1 reasons to continue turns, and counts them for their sessions. Returns the sessions whose parked
-- turns are ready because of it. Leases are locked in the order of their keys.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
taken AS (
    DELETE FROM :"schema".lash_session_wakes AS w
    WHERE w.wake_id = ANY (array(
        SELECT n.wake_id FROM :"schema".lash_session_wakes AS n LIMIT $1::bigint FOR UPDATE SKIP LOCKED
    ))
    RETURNING w.session_key
),
locked AS (
    SELECT l.session_key
    FROM :"schema".lash_session_leases AS l
    WHERE l.session_key IN (SELECT taken.session_key FROM taken)
    ORDER BY l.session_key
    FOR NO KEY UPDATE
),
woken AS (
    UPDATE :"schema".lash_session_leases AS l
    SET wake_seq = l.wake_seq + 1,
        paused_until_ms = CASE
            WHEN l.waiting_for IS NOT NULL THEN least(l.paused_until_ms, clock.now_ms)
            ELSE l.paused_until_ms
        END
    FROM clock, locked
    WHERE l.session_key = locked.session_key
    RETURNING l.session_key, l.waiting_for
)
SELECT s.session_id
FROM woken AS w
JOIN :"schema".lash_sessions AS s ON s.session_key = w.session_key
WHERE w.waiting_for IS NOT NULL;
