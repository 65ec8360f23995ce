-- name: rows_pulse
-- Counters that grow with every kind of work.
SELECT
    (SELECT coalesce(sum(revision), 0) FROM lash_sessions),
    (SELECT coalesce(sum(fencing), 0) FROM lash_session_leases),
    (SELECT coalesce(sum(claim_count), 0) FROM lash_batches),
    (SELECT coalesce(max(seq), 0) FROM lash_batches),
    (SELECT coalesce(sum(last_sequence), 0) FROM lash_processes),
    (SELECT coalesce(max(updated_at_ms), 0) FROM lash_processes),
    (SELECT coalesce(sum(fencing + wake_seq), 0) FROM lash_process_leases),
    (SELECT coalesce(max(seq), 0) FROM lash_process_changes),
    (SELECT coalesce(max(updated_at_ms), 0) FROM lash_effects),
    (SELECT coalesce(sum(fencing), 0) FROM lash_effects),
    (SELECT coalesce(count(resolved_at_ms), 0) FROM lash_waits),
    (SELECT coalesce(sum(revision), 0) FROM lash_trigger_subscriptions),
    (SELECT coalesce(max(updated_at_ms), 0) FROM lash_schedules),
    (SELECT coalesce(sum(attempts), 0) FROM lash_trigger_deliveries),
    (SELECT coalesce(sum(version), 0) FROM lash_attachment_fences),
    (SELECT coalesce(max(place), 0) FROM lash_dead_letters),
    (SELECT coalesce(max(put_at_ms), 0) FROM lash_artifacts),
    (SELECT coalesce(sum(version), 0) FROM lash_records),
    (SELECT coalesce(max(updated_at_ms), 0) FROM lash_records);

-- name: rows_sequences
-- The last number that each table has assigned; on SQLite every connection may read and set it. The entries of the change
-- feed have one numbering, as on PostgreSQL, that of the table of its changes.
SELECT name, seq, true FROM sqlite_sequence WHERE name GLOB 'lash_*' AND name <> 'lash_process_changes'
UNION ALL
SELECT 'lash_process_changes', d.seq, true FROM lash_process_change_end AS d WHERE d.seq > 0
ORDER BY name;

-- name: rows_forget_sequence
-- Removes the sequence that the rows of a move have left, before the next query writes the right one.
DELETE FROM sqlite_sequence WHERE name = :table;

-- name: rows_set_sequence
-- Lets new numbers of a table start above this one.
INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :number);

-- name: rows_mark
-- The mark of an unfinished move into this storage.
SELECT secret FROM lash_secrets WHERE name = 'move';

-- name: rows_forget_secrets
-- Removes the secrets of this storage; the move writes those of the source.
DELETE FROM lash_secrets WHERE name <> 'move';

-- name: rows_begin
-- Writes the mark of a move, unless there is one.
INSERT INTO lash_secrets (name, secret, created_at_ms) VALUES ('move', :mark, :now_ms)
ON CONFLICT DO NOTHING;

-- name: rows_note
-- Replaces the mark of a move, unless another move has changed it.
UPDATE lash_secrets SET secret = :mark WHERE name = 'move' AND secret = :before;

-- name: rows_finish
-- Removes the mark of a finished move, unless another move has changed it.
DELETE FROM lash_secrets WHERE name = 'move' AND secret = :before;
