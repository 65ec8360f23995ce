-- The work list: which processes are ready to run, which are parked and until when, which sessions pause.
-- Like the lease, and in its row, this is scheduling state: no event reports it.

-- Which process started this one. Its end wakes that one.
ALTER TABLE lash_processes ADD COLUMN parent_process_id TEXT;
UPDATE lash_processes
SET parent_process_id = registration ->> '$.provenance.caused_by.process_id'
WHERE registration ->> '$.provenance.caused_by.type' IN ('process', 'process_event')
    AND registration ->> '$.provenance.caused_by.process_id' <> process_id;

-- runnable: workers may run it, until it ends. wake_seq counts the reasons to run it. ready_at_ms: since when, or from
-- when on, it is on the work list; NULL if it is not: external, ended, or parked until it is woken.
ALTER TABLE lash_process_leases ADD COLUMN runnable INTEGER NOT NULL DEFAULT 1 CHECK (runnable IN (0, 1));
ALTER TABLE lash_process_leases ADD COLUMN wake_seq INTEGER NOT NULL DEFAULT 0 CHECK (wake_seq >= 0);
ALTER TABLE lash_process_leases ADD COLUMN ready_at_ms INTEGER CHECK (ready_at_ms IS NULL OR runnable = 1);
UPDATE lash_process_leases
SET runnable = 0
WHERE process_key IN (SELECT process_key FROM lash_processes WHERE status <> 'running' OR recovery = 'external');
UPDATE lash_process_leases SET ready_at_ms = 0 WHERE runnable = 1;
-- Finds what is ready or will be, however much else is parked or runs.
CREATE INDEX lash_process_leases_ready ON lash_process_leases (ready_at_ms, process_key)
WHERE ready_at_ms IS NOT NULL AND token IS NULL;
-- Finds what is ready because its holder let it lapse.
CREATE INDEX lash_process_leases_lapsed ON lash_process_leases (expires_at_ms, process_key)
WHERE ready_at_ms IS NOT NULL AND token IS NOT NULL;
-- Finds the holders on one boot of one machine, where a dead one can be distinguished from a slow one.
CREATE INDEX lash_process_leases_holder ON lash_process_leases (process ->> '$.boot_id', incarnation_id)
WHERE process IS NOT NULL;

-- Until when a session is kept off the work list after a failure; NULL if it is not. The next claim ends it.
ALTER TABLE lash_session_leases ADD COLUMN paused_until_ms INTEGER;
-- Finds when the next pause ends.
CREATE INDEX lash_session_leases_paused ON lash_session_leases (paused_until_ms) WHERE paused_until_ms IS NOT NULL;
-- Finds the holders on one boot of one machine.
CREATE INDEX lash_session_leases_holder ON lash_session_leases (process ->> '$.boot_id', incarnation_id)
WHERE process IS NOT NULL;
