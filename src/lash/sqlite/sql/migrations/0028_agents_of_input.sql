-- Which agent queued input is for, so that a worker that takes only some agents finds it without reading past the rest.

-- The agent that the message names, or else that of the session's last turn; NULL while neither is known.
ALTER TABLE lash_batches ADD COLUMN agent TEXT;
-- Whether the message names the agent.
ALTER TABLE lash_batches ADD COLUMN names_agent INTEGER NOT NULL DEFAULT 0 CHECK (names_agent IN (0, 1));
-- The agent of the batch, and whether its message names it.
ALTER TABLE lash_dead_letters ADD COLUMN agent TEXT;
ALTER TABLE lash_dead_letters ADD COLUMN names_agent INTEGER NOT NULL DEFAULT 0 CHECK (names_agent IN (0, 1));
UPDATE lash_batches
SET agent = (SELECT s.agent FROM lash_sessions AS s WHERE s.session_key = lash_batches.session_key);
-- Finds the sessions with input for one agent.
CREATE INDEX lash_batches_agent ON lash_batches (agent, available_at_ms, session_key);

-- The agent of a session became known, or another one: what is queued without naming an agent is for that one.
CREATE TRIGGER lash_sessions_agent_changed AFTER UPDATE OF agent ON lash_sessions WHEN NEW.agent IS NOT OLD.agent
BEGIN
    UPDATE lash_batches SET agent = NEW.agent WHERE session_key = NEW.session_key AND names_agent = 0;
END;
