-- The event with which a process starts, and the one with which it ends, are in the row of the process.

-- The event of a start that was registered together with the process; NULL if its start is an event of its own. Its
-- type is process.started, its status running, and its time that of the registration.
ALTER TABLE :"schema".lash_processes
ADD COLUMN start_xid xid8,
ADD COLUMN start_seq bigint,
ADD COLUMN start_sequence bigint,
ADD COLUMN start_replay_key text,
ADD COLUMN start_payload_hash text,
ADD COLUMN start_payload text,
-- The event of the end; NULL before, and if the end is an event of its own. Its status is that of the process, and its
-- time that of the end.
ADD COLUMN end_xid xid8,
ADD COLUMN end_seq bigint,
ADD COLUMN end_sequence bigint,
ADD COLUMN end_type text,
ADD COLUMN end_replay_key text,
ADD COLUMN end_payload_hash text,
ADD COLUMN end_payload text,
ADD COLUMN end_wake text;
-- Read the feed in its order.
CREATE INDEX lash_processes_started_feed ON :"schema".lash_processes (start_xid, start_seq) WHERE start_seq IS NOT NULL;
CREATE INDEX lash_processes_ended_feed ON :"schema".lash_processes (end_xid, end_seq) WHERE end_seq IS NOT NULL;

-- The logs of all processes: the events of their own, and those in the rows of the processes.
CREATE VIEW :"schema".lash_process_log AS
SELECT
    e.process_key, e.sequence, e.xid, e.seq, e.status, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake,
    e.occurred_at_ms
FROM :"schema".lash_process_events AS e
UNION ALL
SELECT
    p.process_key, p.start_sequence, p.start_xid, p.start_seq, 'running'::text, 'process.started'::text,
    p.start_replay_key, p.start_payload_hash, p.start_payload, NULL::text, p.created_at_ms
FROM :"schema".lash_processes AS p
WHERE p.start_seq IS NOT NULL
UNION ALL
SELECT
    p.process_key, p.end_sequence, p.end_xid, p.end_seq, p.status, p.end_type, p.end_replay_key, p.end_payload_hash,
    p.end_payload, p.end_wake, p.ended_at_ms
FROM :"schema".lash_processes AS p
WHERE p.end_seq IS NOT NULL;
