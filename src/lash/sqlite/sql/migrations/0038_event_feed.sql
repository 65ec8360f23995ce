-- Events and registrations are entries of the change feed themselves; lash_process_changes keeps the other ones.

-- The place of the registration in the feed; 0 if the feed was pruned of it before.
ALTER TABLE lash_processes ADD COLUMN registered_seq INTEGER NOT NULL DEFAULT 0;

-- The log of each process. seq is the place of an event in the change feed, whose numbers those of the other entries
-- are, and status that of the process after it. The numbers of events that the feed was pruned of before are negative.
-- Owner: the process; removed with it.
ALTER TABLE lash_process_events RENAME TO lash_process_events_before;
DROP INDEX lash_process_events_replay;
DROP INDEX lash_process_events_type;
CREATE TABLE lash_process_events (
    seq            INTEGER PRIMARY KEY,
    process_key    INTEGER NOT NULL REFERENCES lash_processes (process_key) ON DELETE CASCADE,
    sequence       INTEGER NOT NULL CHECK (sequence > 0),
    status         TEXT,
    event_type     TEXT NOT NULL,
    replay_key     TEXT,
    payload_hash   TEXT NOT NULL,
    payload        TEXT NOT NULL,
    wake           TEXT,
    occurred_at_ms INTEGER NOT NULL,
    UNIQUE (process_key, sequence)
) STRICT;

-- A process that was registered again under the id of a pruned one has only the entries after the pruning.
INSERT INTO lash_process_events (
    seq, process_key, sequence, status, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
)
SELECT
    MAX(c.seq), e.process_key, e.sequence, c.status, e.event_type, e.replay_key, e.payload_hash, e.payload, e.wake,
    e.occurred_at_ms
FROM lash_process_changes AS c
JOIN lash_processes AS p ON p.process_id = c.process_id
JOIN lash_process_events_before AS e ON e.process_key = p.process_key AND e.sequence = c.sequence
LEFT JOIN (
    SELECT process_id, MAX(seq) AS seq FROM lash_process_changes WHERE kind = 'pruned' GROUP BY process_id
) AS g ON g.process_id = c.process_id
WHERE c.kind = 'event' AND (g.seq IS NULL OR c.seq > g.seq)
GROUP BY e.process_key, e.sequence;
-- What the feed was pruned of stays out of it.
INSERT INTO lash_process_events (
    seq, process_key, sequence, event_type, replay_key, payload_hash, payload, wake, occurred_at_ms
)
SELECT
    ROW_NUMBER() OVER (ORDER BY b.process_key, b.sequence) - COUNT(*) OVER () - 1, b.process_key, b.sequence,
    b.event_type, b.replay_key, b.payload_hash, b.payload, b.wake, b.occurred_at_ms
FROM lash_process_events_before AS b
WHERE NOT EXISTS (
    SELECT 1 FROM lash_process_events AS e WHERE e.process_key = b.process_key AND e.sequence = b.sequence
)
ORDER BY b.process_key, b.sequence;
DROP TABLE lash_process_events_before;
-- Makes an append under a replay key happen once.
CREATE UNIQUE INDEX lash_process_events_replay ON lash_process_events (process_key, replay_key)
WHERE replay_key IS NOT NULL;
-- Finds and counts the events of one type, signals above all.
CREATE INDEX lash_process_events_type ON lash_process_events (process_key, event_type, sequence);

UPDATE lash_processes
SET registered_seq = found.seq
FROM (
    SELECT c.process_id, MAX(c.seq) AS seq
    FROM lash_process_changes AS c
    LEFT JOIN (
        SELECT process_id, MAX(seq) AS seq FROM lash_process_changes WHERE kind = 'pruned' GROUP BY process_id
    ) AS g ON g.process_id = c.process_id
    WHERE c.kind = 'registered' AND (g.seq IS NULL OR c.seq > g.seq)
    GROUP BY c.process_id
) AS found
WHERE found.process_id = lash_processes.process_id;
-- Reads the registrations of the feed in its order.
CREATE INDEX lash_processes_registered ON lash_processes (registered_seq);
DELETE FROM lash_process_changes WHERE kind = 'event' AND seq IN (SELECT e.seq FROM lash_process_events AS e);
DELETE FROM lash_process_changes WHERE kind = 'registered' AND seq IN (SELECT p.registered_seq FROM lash_processes AS p);

-- The end of the change feed: the highest number of an entry. A number is not assigned again: before an entry is removed,
-- a later one is written, or the floor is raised.
CREATE VIEW lash_process_change_end (seq) AS
SELECT MAX(
    COALESCE((SELECT MAX(e.seq) FROM lash_process_events AS e), 0),
    COALESCE((SELECT MAX(p.registered_seq) FROM lash_processes AS p), 0),
    COALESCE((SELECT MAX(c.seq) FROM lash_process_changes AS c), 0),
    COALESCE((SELECT f.seq FROM lash_process_change_floor AS f WHERE f.one = 1), 0)
);
