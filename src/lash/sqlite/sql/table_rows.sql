-- name: rows_pulse
-- Numbers that grow with work of every kind.
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
    (SELECT coalesce(max(put_at_ms), 0) FROM lash_artifacts);

-- name: rows_sequences
-- The last number that each table has given.
SELECT name, seq FROM sqlite_sequence WHERE name GLOB 'lash_*' ORDER BY name;

-- name: rows_forget_sequence
-- Takes away the number that the rows of a move have left; the next query puts the right one there.
DELETE FROM sqlite_sequence WHERE name = :table;

-- name: rows_set_sequence
-- Lets the numbers of a table go on above this one.
INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :number);

-- name: rows_mark
-- How far an unfinished move into this storage is.
SELECT secret FROM lash_secrets WHERE name = 'move';

-- name: rows_forget_secrets
-- Makes room for the secrets that a move brings.
DELETE FROM lash_secrets WHERE name <> 'move';

-- name: rows_begin
-- Notes that a move has begun, unless one has.
INSERT INTO lash_secrets (name, secret, created_at_ms) VALUES ('move', :mark, :now_ms)
ON CONFLICT DO NOTHING;

-- name: rows_note
-- Notes how far a move is, unless somebody else has meanwhile.
UPDATE lash_secrets SET secret = :mark WHERE name = 'move' AND secret = :before;

-- name: rows_finish
-- Forgets the note of a move that is done, unless somebody else has changed it.
DELETE FROM lash_secrets WHERE name = 'move' AND secret = :before;
