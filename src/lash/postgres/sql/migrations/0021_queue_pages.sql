-- Lists of the queued batches of all sessions.

-- Lists those of all sessions. The sum keeps a planner from walking it to find those of one.
CREATE INDEX lash_batches_all ON :"schema".lash_batches ((seq + 0));
