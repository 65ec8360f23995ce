-- Which agent queued input is for, so that a worker that takes only some agents finds it without reading past the rest.

-- The agent that the message names, or else that of the session's last turn; NULL while neither is known.
ALTER TABLE :"schema".lash_batches ADD COLUMN agent text;
-- Whether the message names the agent.
ALTER TABLE :"schema".lash_batches ADD COLUMN names_agent boolean NOT NULL DEFAULT false;
-- The agent of the batch, and whether its message names it.
ALTER TABLE :"schema".lash_dead_letters ADD COLUMN agent text;
ALTER TABLE :"schema".lash_dead_letters ADD COLUMN names_agent boolean NOT NULL DEFAULT false;
UPDATE :"schema".lash_batches AS b
SET agent = s.agent
FROM :"schema".lash_sessions AS s
WHERE s.session_key = b.session_key AND s.agent IS NOT NULL;
-- Finds the sessions with input for one agent.
CREATE INDEX lash_batches_agent ON :"schema".lash_batches (agent, available_at_ms, session_key);

-- The agent of a session became known, or another one: what is queued without naming an agent is for that one.
CREATE FUNCTION :"schema".lash_session_agent_changed() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE :"schema".lash_batches AS b
    SET agent = NEW.agent
    WHERE b.session_key = NEW.session_key AND NOT b.names_agent;
    RETURN NULL;
END
$$;
CREATE TRIGGER lash_sessions_agent_changed AFTER UPDATE OF agent ON :"schema".lash_sessions
FOR EACH ROW WHEN (NEW.agent IS DISTINCT FROM OLD.agent)
EXECUTE FUNCTION :"schema".lash_session_agent_changed();
