-- fragment: emit_started
-- The lease rows of the processes that were created, above the fencing numbers of pruned processes with the same ids.
raised AS (
    DELETE FROM :"schema".lash_process_tombstones AS t
    USING created
    WHERE t.process_id = created.process_id
    RETURNING t.process_id, t.fencing
),
leased AS (
    INSERT INTO :"schema".lash_process_leases (process_key, fencing, ready_at_ms)
    SELECT created.process_key, coalesce(raised.fencing, 0), created.created_at_ms
    FROM created
    LEFT JOIN raised ON raised.process_id = created.process_id
)

-- name: emit_occurrence
-- Records an occurrence and returns its key; no row if it is recorded already. Waits for a concurrent recording.
INSERT INTO :"schema".lash_trigger_occurrences (occurrence_id, request_hash, request, report, occurred_at_ms)
VALUES ($1::text, $2::text, $3::text, '', :"schema".lash_now_ms())
ON CONFLICT (occurrence_id) DO NOTHING
RETURNING occurrence_key;

-- name: emit_facts
-- The facts of an emission: the occurrence if it is recorded, and the subscriptions that match, in the order in which
-- they were created.
SELECT
    (
        SELECT row(o.occurrence_key, o.occurrence_id, o.request_hash, o.request, o.report, o.occurred_at_ms)
        FROM :"schema".lash_trigger_occurrences AS o
        WHERE o.occurrence_id = $1::text
    ),
    array(
        SELECT row(
            t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition,
            t.enabled, t.created_at_ms, t.updated_at_ms
        )
        FROM :"schema".lash_trigger_subscriptions AS t
        WHERE t.source_type = $2::text AND t.source_key = $3::text AND t.enabled
        ORDER BY t.subscription_key
    );

-- name: emit_apply
-- Records an occurrence, starts its processes and records its deliveries. Nothing is written if other subscriptions
-- match than those of the plan, if a process id is taken, or if the occurrence is recorded already. With a schedule, it
-- also records the next tick, and writes nothing if the schedule changed, is not due, or is locked by another worker.
-- Returns whether the schedule was as expected, and the key of the occurrence if it was written.
-- arguments: occurrence_id, request_hash, request, report, source_type, source_key
-- The subscriptions of the plan, in their order:
-- arguments: subscription_keys, revisions
-- Columns of the processes, and their projection:
-- arguments: process_ids, registration_hashes, registrations, recoveries, kinds, labels, definition_hashes
-- arguments: originators, wake_sessions, environments, projection
-- Columns of the grants:
-- arguments: granted_sessions, granted_processes, granted_kinds, granted_labels
-- Columns of the deliveries:
-- arguments: delivery_subscriptions, delivery_owners, delivery_keys, delivery_processes, delivery_states
-- arguments: delivery_reasons
-- The schedule as the plan knows it, or NULL, and its next tick:
-- arguments: schedule_key, schedule_revision, schedule_last_tick, schedule_tick
-- arguments: last_tick, next_tick, next_fire
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
schedule AS MATERIALIZED (
    SELECT s.schedule_key
    FROM clock, :"schema".lash_schedules AS s
    WHERE s.schedule_key = :schedule_key::bigint AND s.revision = :schedule_revision::bigint
        AND s.last_tick_ms IS NOT DISTINCT FROM :schedule_last_tick::bigint
        AND s.next_tick_ms IS NOT DISTINCT FROM :schedule_tick::bigint AND s.next_fire_ms <= clock.now_ms
    FOR UPDATE OF s SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT :schedule_key::bigint IS NULL OR EXISTS (SELECT 1 FROM schedule) AS expected
),
-- Locked, so that the deletion of a session either sees the processes that they start, or removes them before they
-- start any.
matched AS MATERIALIZED (
    SELECT t.subscription_key, t.revision
    FROM :"schema".lash_trigger_subscriptions AS t
    WHERE t.source_type = :source_type::text AND t.source_key = :source_key::text AND t.enabled
        AND (SELECT held.expected FROM held)
    ORDER BY t.subscription_key
    FOR KEY SHARE
),
guard AS MATERIALIZED (
    SELECT 1
    FROM held
    WHERE held.expected
        AND array(SELECT m.subscription_key FROM matched AS m ORDER BY m.subscription_key)
            = :subscription_keys::bigint[]
        AND array(SELECT m.revision FROM matched AS m ORDER BY m.subscription_key) = :revisions::bigint[]
        AND NOT EXISTS (
            SELECT 1
            FROM unnest(:process_ids::text[]) AS e (process_id)
            JOIN :"schema".lash_processes AS p ON p.process_id = e.process_id
        )
),
occurrence AS (
    INSERT INTO :"schema".lash_trigger_occurrences (occurrence_id, request_hash, request, report, occurred_at_ms)
    SELECT :occurrence_id::text, :request_hash::text, :request::text, :report::text, clock.now_ms
    FROM clock, guard
    ON CONFLICT (occurrence_id) DO NOTHING
    RETURNING occurrence_key, occurred_at_ms
),
-- Without ON CONFLICT: a process that is registered under the same id at this moment fails the statement as a whole.
created AS (
    INSERT INTO :"schema".lash_processes (
        process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
        wake_session_id, environment_ref, status, waiting, projection, last_sequence, created_at_ms, updated_at_ms
    )
    SELECT
        e.process_id, e.registration_hash, e.registration, e.recovery, e.kind, e.label, e.definition_hash,
        e.originator_session_id, e.wake_session_id, e.environment_ref, 'running', false, :projection::text, 0,
        occurrence.occurred_at_ms, occurrence.occurred_at_ms
    FROM occurrence, unnest(
        :process_ids::text[], :registration_hashes::text[], :registrations::text[], :recoveries::text[],
        :kinds::text[], :labels::text[], :definition_hashes::text[], :originators::text[], :wake_sessions::text[],
        :environments::text[]
    ) WITH ORDINALITY AS e (
        process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
        wake_session_id, environment_ref, position
    )
    ORDER BY e.position
    RETURNING process_key, process_id, created_at_ms
),
-- include: emit_started
,
granted AS (
    INSERT INTO :"schema".lash_grants (session_id, frame_id, process_key, kind, label)
    SELECT e.session_id, '', created.process_key, e.kind, e.label
    FROM unnest(
        :granted_sessions::text[], :granted_processes::text[], :granted_kinds::text[], :granted_labels::text[]
    ) AS e (session_id, process_id, kind, label)
    JOIN created ON created.process_id = e.process_id
),
delivered AS (
    INSERT INTO :"schema".lash_trigger_deliveries (
        occurrence_key, position, subscription_id, owner_session_id, key, process_id, state, reason, attempts
    )
    SELECT
        occurrence.occurrence_key, e.position - 1, e.subscription_id, e.owner_session_id, e.key, e.process_id, e.state,
        e.reason, 1
    FROM occurrence, unnest(
        :delivery_subscriptions::text[], :delivery_owners::text[], :delivery_keys::text[],
        :delivery_processes::text[], :delivery_states::text[], :delivery_reasons::text[]
    ) WITH ORDINALITY AS e (subscription_id, owner_session_id, key, process_id, state, reason, position)
),
advanced AS (
    UPDATE :"schema".lash_schedules AS s
    SET last_tick_ms = :last_tick::bigint, next_tick_ms = :next_tick::bigint, next_fire_ms = :next_fire::bigint
    FROM occurrence, schedule
    WHERE s.schedule_key = schedule.schedule_key
)
SELECT held.expected, (SELECT occurrence.occurrence_key FROM occurrence) FROM held;

-- name: emit_stored
-- One occurrence.
SELECT occurrence_key, occurrence_id, request_hash, request, report, occurred_at_ms
FROM :"schema".lash_trigger_occurrences
WHERE occurrence_id = $1::text;

-- name: emit_lock
-- One occurrence, locked until the transaction ends.
SELECT occurrence_key, occurrence_id, request_hash, request, report, occurred_at_ms
FROM :"schema".lash_trigger_occurrences
WHERE occurrence_id = $1::text
FOR UPDATE;

-- name: emit_match
-- The subscriptions that match an occurrence, in the order in which they were created. They are locked, so that the
-- deletion of a session either sees the processes that they start, or removes them before they start any.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM :"schema".lash_trigger_subscriptions AS t
WHERE t.source_type = $1::text AND t.source_key = $2::text AND t.enabled
ORDER BY t.subscription_key
FOR KEY SHARE;

-- name: emit_processes
-- Registers the processes whose ids are free, with lease rows above the fencing numbers of pruned processes with the
-- same ids, and returns their ids. A row that is being pruned counts as existing: its tombstone is not visible yet.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
created AS (
    INSERT INTO :"schema".lash_processes (
        process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
        wake_session_id, environment_ref, status, waiting, projection, last_sequence, created_at_ms, updated_at_ms
    )
    SELECT
        e.process_id, e.registration_hash, e.registration, e.recovery, e.kind, e.label, e.definition_hash,
        e.originator_session_id, e.wake_session_id, e.environment_ref, 'running', false, $11::text, 0, clock.now_ms,
        clock.now_ms
    FROM clock, unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[]
    ) WITH ORDINALITY AS e (
        process_id, registration_hash, registration, recovery, kind, label, definition_hash, originator_session_id,
        wake_session_id, environment_ref, position
    )
    WHERE NOT EXISTS (SELECT 1 FROM :"schema".lash_processes AS p WHERE p.process_id = e.process_id)
    ORDER BY e.position
    ON CONFLICT (process_id) DO NOTHING
    RETURNING process_key, process_id, created_at_ms
),
-- include: emit_started
SELECT process_id FROM created;

-- name: emit_registered
-- The registration hashes of the processes with these ids.
SELECT p.process_id, p.registration_hash
FROM unnest($1::text[]) AS e (process_id)
JOIN :"schema".lash_processes AS p ON p.process_id = e.process_id;

-- name: emit_grants
-- Grants the processes to the sessions that they wake.
INSERT INTO :"schema".lash_grants (session_id, frame_id, process_key, kind, label)
SELECT e.session_id, '', p.process_key, e.kind, e.label
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS e (session_id, process_id, kind, label)
JOIN :"schema".lash_processes AS p ON p.process_id = e.process_id
ON CONFLICT (session_id, frame_id, process_key) DO NOTHING;

-- name: emit_deliveries
-- Records the deliveries of an occurrence, and the report, which every repeated emission returns.
WITH reported AS (
    UPDATE :"schema".lash_trigger_occurrences SET report = $2::text WHERE occurrence_key = $1::bigint
)
INSERT INTO :"schema".lash_trigger_deliveries (
    occurrence_key, position, subscription_id, owner_session_id, key, process_id, state, reason, attempts
)
SELECT
    $1::bigint, e.position - 1, e.subscription_id, e.owner_session_id, e.key, e.process_id, e.state, e.reason, 1
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    WITH ORDINALITY AS e (subscription_id, owner_session_id, key, process_id, state, reason, position);

-- name: emit_all_deliveries
-- All deliveries of an occurrence.
SELECT subscription_id, owner_session_id, key, process_id, state, reason, attempts
FROM :"schema".lash_trigger_deliveries
WHERE occurrence_key = $1::bigint
ORDER BY position;

-- name: emit_delivery
-- One delivery of an occurrence.
SELECT subscription_id, owner_session_id, key, process_id, state, reason, attempts
FROM :"schema".lash_trigger_deliveries
WHERE occurrence_key = $1::bigint AND subscription_id = $2::text;

-- name: emit_subscription
-- One subscription by its id, locked like a match.
SELECT
    t.subscription_key, t.subscription_id, t.owner_session_id, t.key, t.revision, t.fingerprint, t.definition, t.enabled,
    t.created_at_ms, t.updated_at_ms
FROM :"schema".lash_trigger_subscriptions AS t
WHERE t.subscription_id = $1::text
FOR KEY SHARE;

-- name: emit_record_attempt
-- Records another attempt at a delivery.
UPDATE :"schema".lash_trigger_deliveries
SET state = $3::text, reason = $4::text, attempts = $5::bigint
WHERE occurrence_key = $1::bigint AND subscription_id = $2::text;

-- name: emit_prunable
-- Locks the oldest occurrences from before a moment without a running process. OFFSET 0 keeps the planner from scanning
-- all processes.
SELECT o.occurrence_key
FROM :"schema".lash_trigger_occurrences AS o
WHERE o.occurred_at_ms < $1::bigint
    AND NOT EXISTS (
        SELECT 1
        FROM :"schema".lash_trigger_deliveries AS d
        JOIN :"schema".lash_processes AS p ON p.process_id = d.process_id
        WHERE d.occurrence_key = o.occurrence_key AND p.status = 'running'
        OFFSET 0
    )
ORDER BY o.occurred_at_ms, o.occurrence_key
LIMIT $2::bigint
FOR UPDATE OF o SKIP LOCKED;

-- name: emit_prune
-- Removes the occurrences that emit_prunable locked and that got no process before; returns the oldest first.
WITH gone AS (
    DELETE FROM :"schema".lash_trigger_occurrences AS o
    USING unnest($1::bigint[]) AS held (occurrence_key)
    WHERE o.occurrence_key = held.occurrence_key
        AND NOT EXISTS (
            SELECT 1
            FROM :"schema".lash_trigger_deliveries AS d
            JOIN :"schema".lash_processes AS p ON p.process_id = d.process_id
            WHERE d.occurrence_key = o.occurrence_key AND p.status = 'running'
            OFFSET 0
        )
    RETURNING o.occurrence_id, o.occurred_at_ms, o.occurrence_key
)
SELECT gone.occurrence_id
FROM gone
ORDER BY gone.occurred_at_ms, gone.occurrence_key;
