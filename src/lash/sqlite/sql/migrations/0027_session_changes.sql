-- The feed of changes of all sessions: each session once, at the place of its last change.

-- The number of the last change. Numbers grow over the whole storage; 0 is a session that was moved here, or that did
-- not change since this migration.
ALTER TABLE lash_sessions ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
-- Reads the feed in its order, and finds the next number.
CREATE INDEX lash_sessions_changed ON lash_sessions (changed);

-- The number of the deletion. It stays when the id is used again, so that no number is given out twice.
ALTER TABLE lash_session_ids ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
CREATE INDEX lash_session_ids_changed ON lash_session_ids (changed) WHERE changed > 0;
