-- When tokens were spent, and by which agent.

-- The time of the commit and the agent of the session then; both NULL in rows from before this migration. There is no
-- index by time: the entries of a session are in order of time, so that the key finds the new ones from its end.
ALTER TABLE :"schema".lash_usage
ADD COLUMN committed_at_ms bigint,
ADD COLUMN agent text;
