-- Parked turns: a turn that waits for another session, a process, a wait or a moment holds neither lease nor worker.
-- Like the pause and the lease, and in their row, this is scheduling state.

-- wake_seq counts the reasons to continue a turn of the session. waiting_for names what the parked turn waits for; NULL
-- if no turn is parked. paused_until_ms is then the moment from which on the turn can be claimed, 9223372036854775807
-- until it is woken. The input of the parked turn has 9223372036854775807 as available_at_ms.
ALTER TABLE :"schema".lash_session_leases ADD COLUMN wake_seq bigint NOT NULL DEFAULT 0 CHECK (wake_seq >= 0);
ALTER TABLE :"schema".lash_session_leases ADD COLUMN waiting_for text
CHECK (waiting_for IS NULL OR paused_until_ms IS NOT NULL);
-- Finds parked turns that can be claimed.
CREATE INDEX lash_session_leases_parked ON :"schema".lash_session_leases (paused_until_ms)
WHERE waiting_for IS NOT NULL;

-- The session whose turn waits for this batch: it is woken when the batch leaves the queue, in whatever way.
ALTER TABLE :"schema".lash_batches ADD COLUMN wake_session_id text;

-- Reasons to continue a turn that were not counted yet. A reason is written with its cause; counting it is a separate
-- transaction, so that no transaction locks the leases of two sessions in an order of its own.
-- Owner: the session; removed when it is counted, or with the session.
CREATE TABLE :"schema".lash_session_wakes (
    wake_id     text NOT NULL PRIMARY KEY,
    session_key bigint NOT NULL REFERENCES :"schema".lash_sessions (session_key) ON DELETE CASCADE
);
-- Removes the wakes of a session.
CREATE INDEX lash_session_wakes_session ON :"schema".lash_session_wakes (session_key);

-- A batch left the queue: it was consumed, buried, cancelled, or deleted with its session.
CREATE FUNCTION :"schema".lash_batch_left() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO :"schema".lash_session_wakes (wake_id, session_key)
    SELECT replace(gen_random_uuid()::text, '-', ''), s.session_key
    FROM :"schema".lash_sessions AS s
    WHERE s.session_id = OLD.wake_session_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER lash_batches_left AFTER DELETE ON :"schema".lash_batches
FOR EACH ROW WHEN (OLD.wake_session_id IS NOT NULL) EXECUTE FUNCTION :"schema".lash_batch_left();
-- The input of a parked turn was removed: nothing else would let the session continue.
CREATE FUNCTION :"schema".lash_parked_batch_left() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO :"schema".lash_session_wakes (wake_id, session_key)
    SELECT replace(gen_random_uuid()::text, '-', ''), s.session_key
    FROM :"schema".lash_sessions AS s
    WHERE s.session_key = OLD.session_key;
    RETURN NULL;
END
$$;
CREATE TRIGGER lash_batches_parked_left AFTER DELETE ON :"schema".lash_batches
FOR EACH ROW WHEN (OLD.available_at_ms = 9223372036854775807) EXECUTE FUNCTION :"schema".lash_parked_batch_left();
-- A process ended; a turn of the session that it works for may wait for it.
CREATE FUNCTION :"schema".lash_process_ended() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO :"schema".lash_session_wakes (wake_id, session_key)
    SELECT replace(gen_random_uuid()::text, '-', ''), s.session_key
    FROM :"schema".lash_sessions AS s
    WHERE s.session_id = NEW.wake_session_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER lash_processes_ended AFTER UPDATE OF status ON :"schema".lash_processes
FOR EACH ROW WHEN (OLD.status = 'running' AND NEW.status <> 'running' AND NEW.wake_session_id IS NOT NULL)
EXECUTE FUNCTION :"schema".lash_process_ended();
-- A wait of a session was resolved; one of its turns may wait for it.
CREATE FUNCTION :"schema".lash_session_wait_resolved() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO :"schema".lash_session_wakes (wake_id, session_key)
    VALUES (replace(gen_random_uuid()::text, '-', ''), NEW.session_key);
    RETURN NULL;
END
$$;
CREATE TRIGGER lash_waits_resolved_in_session AFTER UPDATE OF resolution ON :"schema".lash_waits
FOR EACH ROW WHEN (OLD.resolution IS NULL AND NEW.resolution IS NOT NULL AND NEW.session_key IS NOT NULL)
EXECUTE FUNCTION :"schema".lash_session_wait_resolved();
