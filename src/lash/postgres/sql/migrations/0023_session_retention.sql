-- How many checkpoints a session keeps.

-- NULL: as many as the storage is opened with. 0: all of them. Else: the last so many.
ALTER TABLE :"schema".lash_sessions ADD COLUMN keep_checkpoints bigint CHECK (keep_checkpoints >= 0);
