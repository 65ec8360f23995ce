-- name: schedule_row
-- The time, and one schedule if it exists, deleted or not.
SELECT
    clock.now_ms,
    CASE WHEN s.schedule_key IS NOT NULL THEN
        row(
            s.schedule_key, s.owner_session_id, s.key, s.definition, s.enabled, s.revision, s.next_tick_ms,
            s.next_fire_ms, s.last_tick_ms, s.created_at_ms, s.updated_at_ms
        )
    END
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
LEFT JOIN :"schema".lash_schedules AS s ON s.owner_session_id = $1::text AND s.key = $2::text;

-- name: schedule_insert
-- Creates the schedule of an owner and key; no row if one exists by now, or if the session is gone. The session is
-- locked, so that its deletion sees the schedule.
WITH session AS (
    SELECT 1 FROM :"schema".lash_session_ids WHERE session_id = $1::text AND deleted_at_ms IS NULL FOR SHARE
)
INSERT INTO :"schema".lash_schedules (
    owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, created_at_ms, updated_at_ms
)
SELECT $1::text, $2::text, $3::text, $4::boolean, 1, $5::bigint, $6::bigint, $7::bigint, $8::bigint
WHERE $1::text = '' OR EXISTS (SELECT 1 FROM session)
ON CONFLICT (owner_session_id, key) DO NOTHING
RETURNING
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms;

-- name: schedule_change
-- Writes the next revision of a schedule; no row if it was changed since it was read, or if the session is gone. The
-- session is locked, so that its deletion sees the schedule.
WITH session AS (
    SELECT 1 FROM :"schema".lash_session_ids WHERE session_id = $1::text AND deleted_at_ms IS NULL FOR SHARE
)
UPDATE :"schema".lash_schedules
SET definition = $3::text, enabled = $4::boolean, revision = revision + 1, next_tick_ms = $5::bigint,
    next_fire_ms = $6::bigint, created_at_ms = $7::bigint, updated_at_ms = $8::bigint
WHERE owner_session_id = $1::text AND key = $2::text AND revision = $9::bigint
    AND last_tick_ms IS NOT DISTINCT FROM $10::bigint
    AND ($1::text = '' OR $3::text IS NULL OR EXISTS (SELECT 1 FROM session))
RETURNING
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms;

-- name: schedule_delete_session
-- Deletes all schedules of a session, and returns their number.
WITH gone AS (
    UPDATE :"schema".lash_schedules
    SET definition = NULL, enabled = FALSE, revision = revision + 1, next_tick_ms = NULL, next_fire_ms = NULL,
        updated_at_ms = clock.now_ms
    FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
    WHERE owner_session_id = $1::text AND definition IS NOT NULL
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: schedule_prune
-- Removes the oldest tombstones of schedules from before a moment, and returns their number.
WITH old AS (
    SELECT d.schedule_key
    FROM :"schema".lash_schedules AS d
    WHERE d.definition IS NULL AND d.updated_at_ms < $1::bigint
    ORDER BY d.updated_at_ms
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM :"schema".lash_schedules
    WHERE schedule_key = ANY (array(SELECT old.schedule_key FROM old))
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: schedule_page
-- Schedules, ordered by owner and key.
SELECT
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms
FROM :"schema".lash_schedules
WHERE (owner_session_id, key) > ($1::text, $2::text) AND definition IS NOT NULL
    AND ($3::boolean IS NULL OR enabled = $3::boolean)
ORDER BY owner_session_id, key
LIMIT $4::bigint;

-- name: schedule_page_owner
-- Schedules of one owner, ordered by key.
SELECT
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms
FROM :"schema".lash_schedules
WHERE owner_session_id = $5::text AND (owner_session_id, key) > ($1::text, $2::text)
    AND definition IS NOT NULL AND ($3::boolean IS NULL OR enabled = $3::boolean)
ORDER BY key
LIMIT $4::bigint;

-- name: schedule_next_fire
-- The moment at which the next schedule is due.
SELECT next_fire_ms FROM :"schema".lash_schedules WHERE next_fire_ms IS NOT NULL ORDER BY next_fire_ms LIMIT 1;

-- name: schedule_due
-- The due schedules, longest due first.
SELECT schedule_key, owner_session_id, key
FROM :"schema".lash_schedules
WHERE next_fire_ms <= (SELECT :"schema".lash_now_ms())
ORDER BY next_fire_ms, schedule_key
LIMIT $1::bigint;

-- name: schedule_at
-- The time, and a schedule if it is still due.
SELECT
    clock.now_ms,
    row(
        s.schedule_key, s.owner_session_id, s.key, s.definition, s.enabled, s.revision, s.next_tick_ms,
        s.next_fire_ms, s.last_tick_ms, s.created_at_ms, s.updated_at_ms
    )
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock, :"schema".lash_schedules AS s
WHERE s.schedule_key = $1::bigint AND s.next_fire_ms <= clock.now_ms;

-- name: schedule_take
-- The time, and a schedule if it is still due and not locked by another worker.
SELECT
    clock.now_ms,
    row(
        s.schedule_key, s.owner_session_id, s.key, s.definition, s.enabled, s.revision, s.next_tick_ms,
        s.next_fire_ms, s.last_tick_ms, s.created_at_ms, s.updated_at_ms
    )
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock, :"schema".lash_schedules AS s
WHERE s.schedule_key = $1::bigint AND s.next_fire_ms <= clock.now_ms
FOR UPDATE OF s SKIP LOCKED;

-- name: schedule_advance
-- Records the last tick that is done with, and the next one.
UPDATE :"schema".lash_schedules
SET last_tick_ms = $2::bigint, next_tick_ms = $3::bigint, next_fire_ms = $4::bigint
WHERE schedule_key = $1::bigint;

-- name: schedule_postpone
-- Postpones an unreadable schedule that is still due; returns until when.
UPDATE :"schema".lash_schedules
SET next_fire_ms = clock.now_ms + $2::bigint
FROM (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
WHERE schedule_key = $1::bigint AND next_fire_ms <= clock.now_ms
RETURNING next_fire_ms;
