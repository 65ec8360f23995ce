-- When tokens were spent, and by which agent.

-- The time of the commit and the agent of the session then; both NULL in rows from before this migration.
ALTER TABLE lash_usage ADD COLUMN committed_at_ms INTEGER;
ALTER TABLE lash_usage ADD COLUMN agent TEXT;
