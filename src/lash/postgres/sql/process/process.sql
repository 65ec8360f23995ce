-- fragment: process_columns
-- The columns of a process row.
SELECT
    p.process_key, p.process_id, p.registration_hash, p.registration, p.projection, p.wake_session_id,
    p.last_sequence, p.created_at_ms, p.updated_at_ms

-- fragment: process_state
-- The facts about the state of a process of a list: one array of JSON, NULL unless they are wanted.
-- A failure is followed by a pause; a later sleep has a step of its own that is due at the same time.
    , CASE WHEN $13::boolean AND p.status = 'running' THEN (
        SELECT json_build_array(
            clock.now_ms, (l.token IS NOT NULL AND l.expires_at_ms > clock.now_ms)::integer, l.runnable::integer,
            l.ready_at_ms,
            (
                SELECT w.identity
                FROM :"schema".lash_waits AS w
                WHERE w.process_key = p.process_key AND w.resolution IS NULL
                ORDER BY w.created_at_ms, w.key_id
                LIMIT 1
            ),
            (
                l.ready_at_ms IS NOT NULL
                AND EXISTS (
                    SELECT 1 FROM :"schema".lash_process_events AS e
                    WHERE e.process_key = p.process_key AND e.sequence = p.last_sequence
                        AND e.event_type = 'process.attempt_failed'
                )
                AND NOT EXISTS (
                    SELECT 1 FROM :"schema".lash_effects AS e
                    WHERE e.process_key = p.process_key AND e.due_at_ms = l.ready_at_ms
                )
            )::integer
        )::text
        FROM :"schema".lash_process_leases AS l, (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
        WHERE l.process_key = p.process_key
    ) END

-- fragment: process_filters
-- The filters of a list, in a form that the planner chooses no index for.
    AND CASE
        WHEN ($14::text IS NULL OR p.process_id = $14::text)
            AND ($3::text IS NULL OR p.definition_hash = $3::text)
            AND ($15::text IS NULL OR p.parent_process_id = $15::text)
            AND ($4::text IS NULL OR p.wake_session_id = $4::text)
            AND ($5::text IS NULL OR p.originator_session_id = $5::text)
            AND ($6::text IS NULL OR p.label = $6::text)
            AND ($7::text IS NULL OR p.kind = $7::text)
            AND ($8::boolean IS NULL OR p.waiting = $8::boolean)
            AND ($12::boolean IS NULL OR $12::boolean = EXISTS (
                SELECT 1 FROM :"schema".lash_process_leases AS l
                WHERE l.process_key = p.process_key AND l.runnable AND l.token IS NULL
                    AND (l.ready_at_ms IS NULL OR l.ready_at_ms > :"schema".lash_now_ms())
            ))
            AND ($9::text IS NULL OR p.status = $9::text)
            AND ($10::bigint IS NULL OR p.created_at_ms > $10::bigint)
            AND ($11::bigint IS NULL OR p.created_at_ms < $11::bigint)
            THEN true
        ELSE false
    END

-- fragment: process_created
-- Registers a process unless its id is taken, and takes over the fencing number of a pruned one of the same id. A row
-- that is being pruned counts as existing, because its tombstone is not visible yet. If begun has the event of its start,
-- that is in the row.
created AS (
    INSERT INTO :"schema".lash_processes (
        process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
        wake_session_id, environment_ref, parent_process_id, status, waiting, projection, last_sequence, created_at_ms,
        updated_at_ms, registered_seq, start_xid, start_seq, start_sequence, start_replay_key, start_payload_hash,
        start_payload
    )
    SELECT
        $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text, $11::text,
        'running', false, $12::text, $13::bigint, clock.now_ms, clock.now_ms, :"schema".lash_next_change(),
        CASE WHEN begun.replay_key IS NOT NULL THEN pg_current_xact_id() END,
        CASE WHEN begun.replay_key IS NOT NULL THEN :"schema".lash_next_change() END,
        CASE WHEN begun.replay_key IS NOT NULL THEN $13::bigint END,
        begun.replay_key, begun.payload_hash, begun.payload
    FROM clock, begun
    WHERE NOT EXISTS (SELECT 1 FROM :"schema".lash_processes WHERE process_id = $1::text)
    ON CONFLICT (process_id) DO NOTHING
    RETURNING
        process_key, process_id, registration_hash, registration, projection, wake_session_id, last_sequence,
        created_at_ms, updated_at_ms
),
raised AS (
    DELETE FROM :"schema".lash_process_tombstones AS t
    USING created
    WHERE t.process_id = created.process_id
    RETURNING t.fencing
),

-- name: process_register
-- Registers a process with its lease row, above the fencing number of a pruned one of the same id; no row if it exists.
-- If workers run it ($14), it is ready at once.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
begun (replay_key, payload_hash, payload) AS (SELECT NULL::text, NULL::text, NULL::text),
-- include: process_created
leased AS (
    INSERT INTO :"schema".lash_process_leases (process_key, fencing, runnable, ready_at_ms)
    SELECT
        created.process_key, coalesce((SELECT raised.fencing FROM raised), 0), $14::boolean,
        CASE WHEN $14::boolean THEN created.created_at_ms END
    FROM created
)
SELECT * FROM created;

-- name: process_register_and_claim
-- Registers a process that workers run and gives its lease to a holder, with the event of its start in the row of the
-- process. Returns the process and the fencing number; no row if the process exists.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
begun (replay_key, payload_hash, payload) AS (SELECT $19::text, $20::text, $21::text),
-- include: process_created
leased AS (
    INSERT INTO :"schema".lash_process_leases (
        process_key, fencing, owner_id, incarnation_id, process, token, claimed_at_ms, expires_at_ms, runnable,
        ready_at_ms
    )
    SELECT
        created.process_key, coalesce((SELECT raised.fencing FROM raised), 0) + 1, $14::text, $15::text, $16::text,
        $17::text, created.created_at_ms,
        least(created.created_at_ms, 9223372036854775807 - $18::bigint) + $18::bigint, true, created.created_at_ms
    FROM created
    RETURNING process_key, fencing
)
SELECT
    row(
        created.process_key, created.process_id, created.registration_hash, created.registration, created.projection,
        created.wake_session_id, created.last_sequence, created.created_at_ms, created.updated_at_ms
    ),
    leased.fencing
FROM created
JOIN leased ON leased.process_key = created.process_key;

-- name: process_row
-- One process.
SELECT
    process_key, process_id, registration_hash, registration, projection, wake_session_id, last_sequence,
    created_at_ms, updated_at_ms
FROM :"schema".lash_processes
WHERE process_id = $1::text;

-- name: process_rows
-- Some processes by their ids.
SELECT
    process_key, process_id, registration_hash, registration, projection, wake_session_id, last_sequence,
    created_at_ms, updated_at_ms
FROM :"schema".lash_processes
WHERE process_id = ANY ($1::text[]);

-- name: process_is_pruned
-- Whether a process of this id was pruned.
SELECT EXISTS (SELECT 1 FROM :"schema".lash_process_tombstones WHERE process_id = $1::text);

-- name: process_page_all
-- Processes that match the given filters, the newest first. CASE keeps the planner from estimating how many match; it
-- would assume almost none.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE p.process_key < coalesce($1::bigint, 9223372036854775807)
-- include: process_filters
ORDER BY p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_id
-- process_page_all, read by id.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE p.process_id = $14::text
    AND p.process_key < coalesce($1::bigint, 9223372036854775807)
-- include: process_filters
ORDER BY p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_definition
-- process_page_all, read by definition. A range and an order over two columns leave no other index to choose, however
-- common the planner estimates the definition to be.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.definition_hash, p.process_key) < ($3::text, coalesce($1::bigint, 9223372036854775807))
    AND p.definition_hash >= $3::text
-- include: process_filters
ORDER BY p.definition_hash DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_parent
-- process_page_all, read by the process that started them.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.parent_process_id, p.process_key) < ($15::text, coalesce($1::bigint, 9223372036854775807))
    AND p.parent_process_id >= $15::text
-- include: process_filters
ORDER BY p.parent_process_id DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_wake
-- process_page_all, read by the session to wake.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.wake_session_id, p.process_key) < ($4::text, coalesce($1::bigint, 9223372036854775807))
    AND p.wake_session_id >= $4::text
-- include: process_filters
ORDER BY p.wake_session_id DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_originator
-- process_page_all, read by the session that started them.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.originator_session_id, p.process_key) < ($5::text, coalesce($1::bigint, 9223372036854775807))
    AND p.originator_session_id >= $5::text
-- include: process_filters
ORDER BY p.originator_session_id DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_label
-- process_page_all, read by label.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.label, p.process_key) < ($6::text, coalesce($1::bigint, 9223372036854775807))
    AND p.label >= $6::text
-- include: process_filters
ORDER BY p.label DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_kind
-- process_page_all, read by kind.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.kind, p.process_key) < ($7::text, coalesce($1::bigint, 9223372036854775807))
    AND p.kind >= $7::text
-- include: process_filters
ORDER BY p.kind DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_waiting
-- process_page_all, read by the waiting flag.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE p.waiting
    AND p.process_key < coalesce($1::bigint, 9223372036854775807)
-- include: process_filters
ORDER BY p.process_key DESC
LIMIT $2::bigint;

-- name: process_page_status
-- process_page_all, read by status.
-- include: process_columns
-- include: process_state
FROM :"schema".lash_processes AS p
WHERE (p.status, p.process_key) < ($9::text, coalesce($1::bigint, 9223372036854775807))
    AND p.status >= $9::text
-- include: process_filters
ORDER BY p.status DESC, p.process_key DESC
LIMIT $2::bigint;

-- name: process_ids
-- Ids from $1 on and before $2, in their order; at most $3.
SELECT process_id
FROM :"schema".lash_processes
WHERE process_id >= $1::text AND process_id < $2::text
ORDER BY process_id
LIMIT $3::bigint;

-- name: process_runnable
-- Running processes after an id that workers can run and that no live lease holds, ordered by id.
-- include: process_columns
FROM :"schema".lash_processes AS p
JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.status = 'running' AND p.recovery <> 'external' AND p.process_id > coalesce($2::text, '')
    AND (l.token IS NULL OR l.expires_at_ms <= :"schema".lash_now_ms())
ORDER BY p.process_id
LIMIT $1::bigint;

-- name: process_versions
-- How many processes have not ended, and how many of them continued as new, by definition; with one of each.
SELECT q.process_id, q.registration, found.number, found.continued, found.oldest_at_ms
FROM (
    SELECT
        max(p.process_key) AS process_key,
        count(*) AS number,
        count(*) FILTER (
            WHERE EXISTS (
                SELECT 1 FROM :"schema".lash_process_events AS e
                WHERE e.process_key = p.process_key AND e.event_type = 'process.continued'
            )
        ) AS continued,
        min(p.created_at_ms) AS oldest_at_ms
    FROM :"schema".lash_processes AS p
    WHERE p.status = 'running' AND p.recovery <> 'external'
    GROUP BY p.kind, p.label, p.definition_hash
) AS found
JOIN :"schema".lash_processes AS q ON q.process_key = found.process_key;

-- name: process_prune
-- Removes at most $4 processes that ended before $1, with everything that they own, and leaves tombstones. The feed
-- must have no entry of them after the position $2, $3 of the epoch $5 (NULL: the end of the feed), and no queue a wake.
-- Entries of the feed that was not pruned of them are kept as changes. Returns their ids, and whether there are more.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Lease rows first, in the lock order of completions.
chosen AS (
    SELECT p.process_key, p.last_sequence, p.ended_at_ms, l.fencing
    FROM :"schema".lash_processes AS p
    JOIN :"schema".lash_process_leases AS l ON l.process_key = p.process_key
    WHERE p.ended_at_ms < $1::bigint
        AND ($5::text IS NULL OR $5::text = (SELECT e.epoch FROM :"schema".lash_process_change_epoch AS e))
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_process_events AS e
            WHERE e.process_key = p.process_key AND (e.xid, e.seq) > ($2::text::xid8, $3::bigint)
        )
        AND NOT coalesce((p.start_xid, p.start_seq) > ($2::text::xid8, $3::bigint), false)
        AND NOT coalesce((p.end_xid, p.end_seq) > ($2::text::xid8, $3::bigint), false)
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_process_changes AS c
            WHERE c.process_id = p.process_id AND (c.xid, c.seq) > ($2::text::xid8, $3::bigint)
        )
        AND ($5::text IS NULL OR (p.registered_xid, p.registered_seq) <= ($2::text::xid8, $3::bigint))
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_wakes AS w WHERE w.process_key = p.process_key AND w.state = 'queued'
        )
    ORDER BY p.ended_at_ms, p.process_key
    LIMIT $4::bigint + 1
    FOR UPDATE OF l SKIP LOCKED
),
doomed AS (SELECT * FROM chosen ORDER BY ended_at_ms, process_key LIMIT $4::bigint),
-- A process with a concurrent event is kept: the reader has not seen the event.
gone AS (
    DELETE FROM :"schema".lash_processes AS p
    USING doomed
    WHERE p.process_key = doomed.process_key AND p.last_sequence = doomed.last_sequence
    RETURNING
        p.process_key, p.process_id, p.status, p.created_at_ms, p.ended_at_ms, p.registered_xid, p.registered_seq,
        p.start_xid, p.start_seq, p.start_sequence, p.end_xid, p.end_seq, p.end_sequence, doomed.fencing
),
buried AS (
    INSERT INTO :"schema".lash_process_tombstones AS t (process_id, status, fencing, pruned_at_ms)
    SELECT gone.process_id, gone.status, gone.fencing, clock.now_ms
    FROM gone, clock
    ON CONFLICT (process_id) DO UPDATE
    SET status = excluded.status, fencing = greatest(t.fencing, excluded.fencing), pruned_at_ms = excluded.pruned_at_ms
),
floor AS (
    SELECT f.xid, f.seq FROM :"schema".lash_process_change_floor AS f UNION ALL SELECT '0'::xid8, 0 LIMIT 1
),
kept AS (
    INSERT INTO :"schema".lash_process_changes (xid, seq, process_id, kind, sequence, status, occurred_at_ms)
    OVERRIDING SYSTEM VALUE
    SELECT gone.registered_xid, gone.registered_seq, gone.process_id, 'registered', NULL, 'running', gone.created_at_ms
    FROM gone, floor
    WHERE (gone.registered_xid, gone.registered_seq) > (floor.xid, floor.seq)
    UNION ALL
    SELECT gone.start_xid, gone.start_seq, gone.process_id, 'event', gone.start_sequence, 'running', gone.created_at_ms
    FROM gone, floor
    WHERE (gone.start_xid, gone.start_seq) > (floor.xid, floor.seq)
    UNION ALL
    SELECT gone.end_xid, gone.end_seq, gone.process_id, 'event', gone.end_sequence, gone.status, gone.ended_at_ms
    FROM gone, floor
    WHERE (gone.end_xid, gone.end_seq) > (floor.xid, floor.seq)
    UNION ALL
    SELECT e.xid, e.seq, gone.process_id, 'event', e.sequence, e.status, e.occurred_at_ms
    FROM floor, gone
    JOIN :"schema".lash_process_events AS e ON e.process_key = gone.process_key
    WHERE (e.xid, e.seq) > (floor.xid, floor.seq)
),
change AS (
    INSERT INTO :"schema".lash_process_changes (process_id, kind, status, occurred_at_ms)
    SELECT gone.process_id, 'pruned', gone.status, clock.now_ms
    FROM gone, clock
    ORDER BY gone.ended_at_ms, gone.process_key
)
SELECT
    array(SELECT process_id FROM gone ORDER BY ended_at_ms, process_key),
    (SELECT count(*) FROM chosen) > $4::bigint;
