-- Cron schedules.

-- One row for each owner and key; owner_session_id is empty for the host. What the schedule is stands in definition; a
-- row without one is what is left of a deleted schedule, so that revisions and ticks go on where they were.
-- Owner: the host or the session; deleted with the session, and removed by pruning what was deleted.
CREATE TABLE lash_schedules (
    schedule_key     INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_session_id TEXT NOT NULL,
    key              TEXT NOT NULL,
    definition       TEXT,
    enabled          INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    revision         INTEGER NOT NULL CHECK (revision > 0),
    next_tick_ms     INTEGER,
    next_fire_ms     INTEGER,
    last_tick_ms     INTEGER,
    created_at_ms    INTEGER NOT NULL,
    updated_at_ms    INTEGER NOT NULL,
    UNIQUE (owner_session_id, key),
    CHECK ((next_tick_ms IS NULL) = (next_fire_ms IS NULL)),
    CHECK (next_fire_ms IS NULL OR enabled = 1),
    CHECK (enabled = 0 OR definition IS NOT NULL)
) STRICT;
-- Finds what is due, and when something will be.
CREATE INDEX lash_schedules_due ON lash_schedules (next_fire_ms, schedule_key) WHERE next_fire_ms IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_schedules_deleted ON lash_schedules (updated_at_ms) WHERE definition IS NULL;
