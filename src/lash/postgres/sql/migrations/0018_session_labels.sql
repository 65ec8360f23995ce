-- Who owns a session, its labels, and what lists of sessions are read by.

-- labels is a JSON object of texts, metadata a JSON object of the owner's own. From expires_at_ms on, maintenance deletes
-- the session. agent is that of the last turn that named one. active_s is the second of the last commit: an index on it
-- leaves most updates of a busy session in place (HOT), as one on updated_at_ms would not.
ALTER TABLE :"schema".lash_sessions
ADD COLUMN owner text,
ADD COLUMN labels text NOT NULL DEFAULT '{}',
ADD COLUMN metadata text NOT NULL DEFAULT '{}',
ADD COLUMN expires_at_ms bigint,
ADD COLUMN agent text,
ADD COLUMN active_s bigint NOT NULL GENERATED ALWAYS AS (updated_at_ms / 1000) STORED;
UPDATE :"schema".lash_sessions AS s
SET agent = p.turn_state::json #>> '{protocol_turn_options,agent}'
FROM :"schema".lash_checkpoints AS p
WHERE p.session_key = s.session_key AND p.revision = s.revision
    AND json_typeof(p.turn_state::json #> '{protocol_turn_options,agent}') = 'string'
    AND length(p.turn_state::json #>> '{protocol_turn_options,agent}') BETWEEN 1 AND 255;
-- Lists by activity.
CREATE INDEX lash_sessions_active ON :"schema".lash_sessions (active_s);
CREATE INDEX lash_sessions_agent ON :"schema".lash_sessions (agent, session_key) WHERE agent IS NOT NULL;
-- Finds ids by their beginning; the order of the unique key is that of the database's language.
CREATE INDEX lash_sessions_prefix ON :"schema".lash_sessions (session_id COLLATE "C");
-- Finds what maintenance deletes.
CREATE INDEX lash_sessions_expiry ON :"schema".lash_sessions (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- The labels of each session once more, one row each, to be found by. The row of the empty key is the session's owner.
-- Owner: the session; written with its labels and its owner, removed with it.
CREATE TABLE :"schema".lash_session_labels (
    session_key bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE,
    key         text NOT NULL,
    value       text NOT NULL,
    PRIMARY KEY (session_key, key)
);
-- Finds the sessions of an owner or a label, in the order of their creation.
CREATE INDEX lash_session_labels_value ON :"schema".lash_session_labels (key, value, session_key);

-- Finds the leases whose holder named no process; the others are found by lash_session_leases_holder.
CREATE INDEX lash_session_leases_unnamed ON :"schema".lash_session_leases (session_key)
WHERE token IS NOT NULL AND process IS NULL;
