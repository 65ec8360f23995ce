-- How each step ran, and the trace of the steps of a committed turn.

-- When the effect began, in which attempt of its turn or process, how often its function was called in that attempt, and
-- the owner id of the worker that recorded it. All are null for effects that an earlier version recorded.
ALTER TABLE :"schema".lash_effects
    ADD COLUMN began_at_ms bigint,
    ADD COLUMN attempt integer CHECK (attempt > 0),
    ADD COLUMN tries integer CHECK (tries > 0),
    ADD COLUMN worker text;

-- The steps of the turn, packed by plan/session/trace.py; null for an append, and for a commit without a trace.
ALTER TABLE :"schema".lash_turns ADD COLUMN trace text;
