-- The event with which a process starts, and the one with which it ends, are in the row of the process.

-- The event of a start that was registered together with the process; NULL if its start is an event of its own. Its
-- type is process.started, its status running, and its time that of the registration.
ALTER TABLE lash_processes ADD COLUMN start_seq INTEGER;
ALTER TABLE lash_processes ADD COLUMN start_sequence INTEGER;
ALTER TABLE lash_processes ADD COLUMN start_replay_key TEXT;
ALTER TABLE lash_processes ADD COLUMN start_payload_hash TEXT;
ALTER TABLE lash_processes ADD COLUMN start_payload TEXT;
-- The event of the end; NULL before, and if the end is an event of its own. Its status is that of the process, and its
-- time that of the end.
ALTER TABLE lash_processes ADD COLUMN end_seq INTEGER;
ALTER TABLE lash_processes ADD COLUMN end_sequence INTEGER;
ALTER TABLE lash_processes ADD COLUMN end_type TEXT;
ALTER TABLE lash_processes ADD COLUMN end_replay_key TEXT;
ALTER TABLE lash_processes ADD COLUMN end_payload_hash TEXT;
ALTER TABLE lash_processes ADD COLUMN end_payload TEXT;
ALTER TABLE lash_processes ADD COLUMN end_wake TEXT;
-- Read the feed in its order.
CREATE INDEX lash_processes_started_feed ON lash_processes (start_seq) WHERE start_seq IS NOT NULL;
CREATE INDEX lash_processes_ended_feed ON lash_processes (end_seq) WHERE end_seq IS NOT NULL;

-- The logs of all processes: the events of their own, and those in the rows of the processes. The casts give the columns
-- of the three the same affinity: without it, SQLite reads a whole log for each page of it.
CREATE VIEW lash_process_log (
    process_key, sequence, seq, status, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
) AS
SELECT
    e.process_key, e.sequence, e.seq, e.status, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake,
    e.occurred_at_ms
FROM lash_process_events AS e
UNION ALL
SELECT
    p.process_key, p.start_sequence, p.start_seq, CAST('running' AS TEXT), CAST('process.started' AS TEXT),
    p.start_replay_key, p.start_payload_hash, p.start_payload, CAST(NULL AS TEXT), p.created_at_ms
FROM lash_processes AS p
WHERE p.start_seq IS NOT NULL
UNION ALL
SELECT
    p.process_key, p.end_sequence, p.end_seq, p.status, p.end_type, p.end_replay_key, p.end_payload_hash,
    p.end_payload, p.end_wake, p.ended_at_ms
FROM lash_processes AS p
WHERE p.end_seq IS NOT NULL;

-- The end of the change feed: the highest number of an entry. A number is not assigned again: before an entry is removed,
-- a later one is written, or the floor is raised.
DROP VIEW lash_process_change_end;
CREATE VIEW lash_process_change_end (seq) AS
SELECT MAX(
    COALESCE((SELECT MAX(e.seq) FROM lash_process_events AS e), 0),
    COALESCE((SELECT MAX(p.registered_seq) FROM lash_processes AS p), 0),
    COALESCE((SELECT MAX(p.start_seq) FROM lash_processes AS p WHERE p.start_seq IS NOT NULL), 0),
    COALESCE((SELECT MAX(p.end_seq) FROM lash_processes AS p WHERE p.end_seq IS NOT NULL), 0),
    COALESCE((SELECT MAX(c.seq) FROM lash_process_changes AS c), 0),
    COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0)
);
