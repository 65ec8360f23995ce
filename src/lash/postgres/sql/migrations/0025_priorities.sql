-- Priorities of messages, and the lanes of the work list: ready work by priority, by arrival, and the newest.

-- 0 is the default, 9 the most urgent.
ALTER TABLE :"schema".lash_batches
ADD COLUMN priority bigint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9);
ALTER TABLE :"schema".lash_dead_letters
ADD COLUMN priority bigint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9);
-- Finds the most urgent work that is ready; work of the default priority is not in it.
CREATE INDEX lash_batches_urgent ON :"schema".lash_batches (priority DESC, (seq - 0))
WHERE available_at_ms = 0 AND priority > 0;
-- Finds the first and the last work that is ready. The difference keeps a planner from walking it for the work of one
-- session, and from walking the list of all batches for this.
CREATE INDEX lash_batches_arrived ON :"schema".lash_batches ((seq - 0)) WHERE available_at_ms = 0;
