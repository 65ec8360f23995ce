-- name: schedule_row
-- One schedule, deleted or not.
SELECT
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms
FROM lash_schedules
WHERE owner_session_id = :owner_session_id AND key = :key;

-- name: schedule_insert
-- Creates the schedule of an owner and key.
INSERT INTO lash_schedules (
    owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, created_at_ms, updated_at_ms
)
VALUES (
    :owner_session_id, :key, :definition, :enabled, 1, :next_tick_ms, :next_fire_ms, :created_at_ms, :now_ms
)
RETURNING
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms;

-- name: schedule_change
-- Writes the next revision of a schedule.
UPDATE lash_schedules
SET definition = :definition, enabled = :enabled, revision = revision + 1, next_tick_ms = :next_tick_ms,
    next_fire_ms = :next_fire_ms, created_at_ms = :created_at_ms, updated_at_ms = :now_ms
WHERE owner_session_id = :owner_session_id AND key = :key AND revision = :expected_revision
RETURNING
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms;

-- name: schedule_delete_session
-- Deletes all schedules of a session.
UPDATE lash_schedules
SET definition = NULL, enabled = FALSE, revision = revision + 1, next_tick_ms = NULL, next_fire_ms = NULL,
    updated_at_ms = :now_ms
WHERE owner_session_id = :session_id AND definition IS NOT NULL;

-- name: schedule_prune
-- Removes the oldest tombstones of schedules from before a moment.
DELETE FROM lash_schedules
WHERE schedule_key IN (
    SELECT d.schedule_key FROM lash_schedules AS d
    WHERE d.definition IS NULL AND d.updated_at_ms < :before_ms
    ORDER BY d.updated_at_ms
    LIMIT :limit
);

-- name: schedule_page
-- Schedules, ordered by owner and key.
SELECT
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms
FROM lash_schedules
WHERE (owner_session_id, key) > (:after_owner, :after_key) AND definition IS NOT NULL
    AND (:enabled IS NULL OR enabled = :enabled)
ORDER BY owner_session_id, key
LIMIT :limit;

-- name: schedule_page_owner
-- Schedules of one owner, ordered by key.
SELECT
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms
FROM lash_schedules
WHERE owner_session_id = :owner_session_id AND (owner_session_id, key) > (:after_owner, :after_key)
    AND definition IS NOT NULL AND (:enabled IS NULL OR enabled = :enabled)
ORDER BY key
LIMIT :limit;

-- name: schedule_next_fire
-- The moment at which the next schedule is due.
SELECT next_fire_ms FROM lash_schedules WHERE next_fire_ms > 0 ORDER BY next_fire_ms LIMIT 1;

-- name: schedule_due
-- The due schedules, longest due first.
SELECT schedule_key, owner_session_id, key
FROM lash_schedules
WHERE next_fire_ms <= :now_ms
ORDER BY next_fire_ms, schedule_key
LIMIT :limit;

-- name: schedule_take
-- A schedule that is still due.
SELECT
    schedule_key, owner_session_id, key, definition, enabled, revision, next_tick_ms, next_fire_ms, last_tick_ms,
    created_at_ms, updated_at_ms
FROM lash_schedules
WHERE schedule_key = :schedule_key AND next_fire_ms <= :now_ms;

-- name: schedule_advance
-- Records the last tick that is done with, and the next one.
UPDATE lash_schedules
SET last_tick_ms = :last_tick_ms, next_tick_ms = :next_tick_ms, next_fire_ms = :next_fire_ms
WHERE schedule_key = :schedule_key;

-- name: schedule_postpone
-- Postpones an unreadable schedule that is still due.
UPDATE lash_schedules SET next_fire_ms = :retry_at_ms WHERE schedule_key = :schedule_key AND next_fire_ms <= :now_ms;
