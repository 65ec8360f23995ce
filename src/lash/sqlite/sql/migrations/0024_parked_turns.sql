-- Parked turns: a turn that waits for another session, a process, a wait or a moment holds neither lease nor worker.
-- Like the pause and the lease, and in their row, this is scheduling state.

-- wake_seq counts the reasons to continue a turn of the session. waiting_for names what the parked turn waits for; NULL
-- if no turn is parked. paused_until_ms is then the moment from which on the turn can be claimed, 9223372036854775807
-- until it is woken. The input of the parked turn has 9223372036854775807 as available_at_ms.
ALTER TABLE lash_session_leases ADD COLUMN wake_seq INTEGER NOT NULL DEFAULT 0 CHECK (wake_seq >= 0);
ALTER TABLE lash_session_leases ADD COLUMN waiting_for TEXT
CHECK (waiting_for IS NULL OR paused_until_ms IS NOT NULL);
-- Finds parked turns that can be claimed.
CREATE INDEX lash_session_leases_parked ON lash_session_leases (paused_until_ms) WHERE waiting_for IS NOT NULL;

-- The session whose turn waits for this batch: it is woken when the batch leaves the queue, in whatever way.
ALTER TABLE lash_batches ADD COLUMN wake_session_id TEXT;

-- Reasons to continue a turn that were not counted yet. A reason is written with its cause; counting it is a separate
-- transaction, so that no transaction changes the leases of two sessions.
-- Owner: the session; removed when it is counted, or with the session.
CREATE TABLE lash_session_wakes (
    wake_id     TEXT NOT NULL PRIMARY KEY,
    session_key INTEGER NOT NULL REFERENCES lash_sessions (session_key) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
-- Removes the wakes of a session.
CREATE INDEX lash_session_wakes_session ON lash_session_wakes (session_key);

-- A batch left the queue: it was consumed, buried, cancelled, or deleted with its session.
CREATE TRIGGER lash_batches_left AFTER DELETE ON lash_batches WHEN OLD.wake_session_id IS NOT NULL
BEGIN
    INSERT INTO lash_session_wakes (wake_id, session_key)
    SELECT lower(hex(randomblob(16))), s.session_key FROM lash_sessions AS s WHERE s.session_id = OLD.wake_session_id;
END;
-- The input of a parked turn was removed: nothing else would let the session continue.
CREATE TRIGGER lash_batches_parked_left AFTER DELETE ON lash_batches WHEN OLD.available_at_ms = 9223372036854775807
BEGIN
    INSERT INTO lash_session_wakes (wake_id, session_key)
    SELECT lower(hex(randomblob(16))), s.session_key FROM lash_sessions AS s WHERE s.session_key = OLD.session_key;
END;
-- A process ended; a turn of the session that it works for may wait for it.
CREATE TRIGGER lash_processes_ended AFTER UPDATE OF status ON lash_processes
WHEN OLD.status = 'running' AND NEW.status <> 'running' AND NEW.wake_session_id IS NOT NULL
BEGIN
    INSERT INTO lash_session_wakes (wake_id, session_key)
    SELECT lower(hex(randomblob(16))), s.session_key FROM lash_sessions AS s WHERE s.session_id = NEW.wake_session_id;
END;
-- A wait of a session was resolved; one of its turns may wait for it.
CREATE TRIGGER lash_waits_resolved_in_session AFTER UPDATE OF resolution ON lash_waits
WHEN OLD.resolution IS NULL AND NEW.resolution IS NOT NULL AND NEW.session_key IS NOT NULL
BEGIN
    INSERT INTO lash_session_wakes (wake_id, session_key) VALUES (lower(hex(randomblob(16))), NEW.session_key);
END;
