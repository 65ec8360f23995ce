-- Indexes by time, for what happened in each interval.

-- Counts turns by the time of their commits. They are stored in about this order, and a commit does not write to it.
CREATE INDEX lash_turns_committed ON :"schema".lash_turns
USING brin (committed_at_ms) WITH (pages_per_range = 16, autosummarize = on);
-- Counts dead letters by the time at which they were given up.
CREATE INDEX lash_dead_letters_died ON :"schema".lash_dead_letters (died_at_ms);
