-- Who owns a session, its labels, and what lists of sessions are read by.

-- labels is a JSON object of texts, metadata a JSON object of the owner's own. From expires_at_ms on, maintenance deletes
-- the session. agent is that of the last turn that named one.
ALTER TABLE lash_sessions ADD COLUMN owner TEXT;
ALTER TABLE lash_sessions ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
ALTER TABLE lash_sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
ALTER TABLE lash_sessions ADD COLUMN expires_at_ms INTEGER;
ALTER TABLE lash_sessions ADD COLUMN agent TEXT;
UPDATE lash_sessions
SET agent = (
    SELECT p.turn_state ->> '$.protocol_turn_options.agent'
    FROM lash_checkpoints AS p
    WHERE p.session_key = lash_sessions.session_key AND p.revision = lash_sessions.revision
        AND json_type(p.turn_state, '$.protocol_turn_options.agent') = 'text'
        AND length(p.turn_state ->> '$.protocol_turn_options.agent') BETWEEN 1 AND 255
);
-- Lists by activity. Every commit moves its session here.
CREATE INDEX lash_sessions_active ON lash_sessions (updated_at_ms);
CREATE INDEX lash_sessions_agent ON lash_sessions (agent) WHERE agent IS NOT NULL;
-- Finds what maintenance deletes.
CREATE INDEX lash_sessions_expiry ON lash_sessions (expires_at_ms) WHERE expires_at_ms IS NOT NULL;

-- The labels of each session once more, one row each, to be found by. The row of the empty key is the session's owner.
-- Owner: the session; written with its labels and its owner, removed with it.
CREATE TABLE lash_session_labels (
    session_key INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE,
    key         TEXT NOT NULL,
    value       TEXT NOT NULL,
    PRIMARY KEY (session_key, key)
) STRICT, WITHOUT ROWID;
-- Finds the sessions of an owner or a label, in the order of their creation.
CREATE INDEX lash_session_labels_value ON lash_session_labels (key, value, session_key);

-- Finds the leases whose holder named no process; the others are found by lash_session_leases_holder.
CREATE INDEX lash_session_leases_unnamed ON lash_session_leases (session_key)
WHERE token IS NOT NULL AND process IS NULL;
