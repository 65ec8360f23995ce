-- How each step ran, and the trace of the steps of a committed turn.

-- When the effect began, in which attempt of its turn or process, how often its function was called in that attempt, and
-- the owner id of the worker that recorded it. All are null for effects that an earlier version recorded.
ALTER TABLE lash_effects ADD COLUMN began_at_ms INTEGER;
ALTER TABLE lash_effects ADD COLUMN attempt INTEGER CHECK (attempt > 0);
ALTER TABLE lash_effects ADD COLUMN tries INTEGER CHECK (tries > 0);
ALTER TABLE lash_effects ADD COLUMN worker TEXT;

-- The steps of the turn, packed by plan/session/trace.py; null for an append, and for a commit without a trace.
ALTER TABLE lash_turns ADD COLUMN trace TEXT;
