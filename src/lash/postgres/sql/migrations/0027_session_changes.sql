-- The feed of changes of all sessions: each session once, at the place of its last change.

-- The transaction of the last change; 2, which the server never gives out, is a session that did not change since this
-- migration, or since the feed began a new epoch. change_page leaves most updates of a busy session in place (HOT): it
-- changes once in 1,024 transactions, and an index on the transaction would change at every commit.
ALTER TABLE :"schema".lash_sessions
ADD COLUMN changed_xid xid8 NOT NULL DEFAULT '2'::xid8,
ADD COLUMN change_page bigint NOT NULL GENERATED ALWAYS AS (
    CASE WHEN changed_xid > '2'::xid8 THEN changed_xid::text::bigint / 1024 ELSE -1 END
) STORED;
ALTER TABLE :"schema".lash_sessions ALTER COLUMN changed_xid SET DEFAULT pg_current_xact_id();
-- Reads the feed in its order; the server sorts the sessions of one page.
CREATE INDEX lash_sessions_changed ON :"schema".lash_sessions (change_page);

-- The transaction of the deletion; NULL if the session was not deleted in this epoch of the feed.
ALTER TABLE :"schema".lash_session_ids ADD COLUMN changed_xid xid8;
CREATE INDEX lash_session_ids_changed ON :"schema".lash_session_ids (changed_xid) WHERE changed_xid IS NOT NULL;
