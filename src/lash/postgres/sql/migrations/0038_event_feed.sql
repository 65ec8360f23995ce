-- Events and registrations are entries of the change feed themselves; lash_process_changes keeps the other ones.

-- The place of an event in the feed, whose numbers those of the other entries are, and the status of the process after it.
-- The numbers of events that the feed was pruned of before are negative.
ALTER TABLE :"schema".lash_process_events
ADD COLUMN xid xid8,
ADD COLUMN seq bigint,
ADD COLUMN status text;
-- The place of the registration in the feed; 0 if the feed was pruned of it before.
ALTER TABLE :"schema".lash_processes
ADD COLUMN registered_xid xid8,
ADD COLUMN registered_seq bigint;

-- A process that was registered again under the id of a pruned one has only the entries after the pruning.
UPDATE :"schema".lash_process_events AS e
SET xid = c.xid, seq = c.seq, status = c.status
FROM :"schema".lash_processes AS p, :"schema".lash_process_changes AS c
WHERE p.process_key = e.process_key AND c.process_id = p.process_id AND c.kind = 'event' AND c.sequence = e.sequence
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_process_changes AS g
        WHERE g.process_id = c.process_id AND g.kind = 'pruned' AND (g.xid, g.seq) > (c.xid, c.seq)
    );
UPDATE :"schema".lash_processes AS p
SET registered_xid = c.xid, registered_seq = c.seq
FROM :"schema".lash_process_changes AS c
WHERE c.process_id = p.process_id AND c.kind = 'registered'
    AND NOT EXISTS (
        SELECT 1 FROM :"schema".lash_process_changes AS g
        WHERE g.process_id = c.process_id AND g.kind = 'pruned' AND (g.xid, g.seq) > (c.xid, c.seq)
    );
DELETE FROM :"schema".lash_process_changes AS c
USING :"schema".lash_process_events AS e
WHERE c.kind = 'event' AND e.seq = c.seq;
DELETE FROM :"schema".lash_process_changes AS c
USING :"schema".lash_processes AS p
WHERE c.kind = 'registered' AND p.registered_seq = c.seq;

-- What the feed was pruned of stays out of it.
UPDATE :"schema".lash_process_events AS e
SET xid = '0'::xid8, seq = old.place - old.number - 1
FROM (
    SELECT
        o.process_key, o.sequence, row_number() OVER (ORDER BY o.process_key, o.sequence) AS place,
        count(*) OVER () AS number
    FROM :"schema".lash_process_events AS o
    WHERE o.seq IS NULL
) AS old
WHERE e.process_key = old.process_key AND e.sequence = old.sequence;
UPDATE :"schema".lash_processes
SET registered_xid = '0'::xid8, registered_seq = 0
WHERE registered_seq IS NULL;

-- The next number of the feed. A role that may add rows may number them, and needs no right on the sequence.
CREATE FUNCTION :"schema".lash_next_change() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = :"schema", pg_temp
AS $$
BEGIN
    RETURN pg_catalog.nextval('lash_process_changes_seq_seq'::pg_catalog.regclass);
END
$$;
ALTER TABLE :"schema".lash_process_events
ALTER COLUMN xid SET DEFAULT pg_current_xact_id(),
ALTER COLUMN xid SET NOT NULL,
ALTER COLUMN seq SET DEFAULT :"schema".lash_next_change(),
ALTER COLUMN seq SET NOT NULL;
ALTER TABLE :"schema".lash_processes
ALTER COLUMN registered_xid SET DEFAULT pg_current_xact_id(),
ALTER COLUMN registered_xid SET NOT NULL,
ALTER COLUMN registered_seq SET DEFAULT :"schema".lash_next_change(),
ALTER COLUMN registered_seq SET NOT NULL;
-- Read the feed in its order.
CREATE INDEX lash_process_events_feed ON :"schema".lash_process_events (xid, seq);
CREATE INDEX lash_processes_registered ON :"schema".lash_processes (registered_xid, registered_seq);
