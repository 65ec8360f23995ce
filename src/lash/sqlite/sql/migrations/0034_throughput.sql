-- Indexes by time, for what happened in each interval.

-- Counts turns by the time of their commits.
CREATE INDEX lash_turns_committed ON lash_turns (committed_at_ms);
-- Counts dead letters by the time at which they were given up.
CREATE INDEX lash_dead_letters_died ON lash_dead_letters (died_at_ms);
