-- Priorities of messages, and the lanes of the work list: ready work by priority, by arrival, and the newest.

-- 0 is the default, 9 the most urgent.
ALTER TABLE lash_batches ADD COLUMN priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9);
ALTER TABLE lash_dead_letters ADD COLUMN priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9);
-- Finds the most urgent work that is ready; work of the default priority is not in it.
CREATE INDEX lash_batches_urgent ON lash_batches (priority DESC) WHERE available_at_ms = 0 AND priority > 0;
-- Finds the first and the last work that is ready: its entries are in the order of seq.
CREATE INDEX lash_batches_arrived ON lash_batches (available_at_ms) WHERE available_at_ms = 0;
