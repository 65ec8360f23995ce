-- Cron schedules.

-- One row for each owner and key; owner_session_id is empty for the host. What the schedule is stands in definition; a
-- row without one is what is left of a deleted schedule, so that revisions and ticks go on where they were. Owners and
-- keys are ordered by their bytes, as they are on SQLite.
-- Owner: the host or the session; deleted with the session, and removed by pruning what was deleted.
CREATE TABLE :"schema".lash_schedules (
    schedule_key     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_session_id text COLLATE "C" NOT NULL,
    key              text COLLATE "C" NOT NULL,
    definition       text,
    enabled          boolean NOT NULL,
    revision         bigint NOT NULL CHECK (revision > 0),
    next_tick_ms     bigint,
    next_fire_ms     bigint,
    last_tick_ms     bigint,
    created_at_ms    bigint NOT NULL,
    updated_at_ms    bigint NOT NULL,
    UNIQUE (owner_session_id, key),
    CHECK ((next_tick_ms IS NULL) = (next_fire_ms IS NULL)),
    CHECK (next_fire_ms IS NULL OR enabled),
    CHECK (NOT enabled OR definition IS NOT NULL)
);
-- Finds what is due, and when something will be.
CREATE INDEX lash_schedules_due ON :"schema".lash_schedules (next_fire_ms, schedule_key)
WHERE next_fire_ms IS NOT NULL;
-- Finds what can be pruned.
CREATE INDEX lash_schedules_deleted ON :"schema".lash_schedules (updated_at_ms) WHERE definition IS NULL;
