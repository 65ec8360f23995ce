-- name: rows_pulse
-- Counters that grow with every kind of work.
SELECT
    (SELECT coalesce(sum(revision), 0)::bigint FROM :"schema".lash_sessions),
    (SELECT coalesce(sum(fencing), 0)::bigint FROM :"schema".lash_session_leases),
    (SELECT coalesce(sum(claim_count), 0)::bigint FROM :"schema".lash_batches),
    (SELECT coalesce(max(seq), 0)::bigint FROM :"schema".lash_batches),
    (SELECT coalesce(sum(last_sequence), 0)::bigint FROM :"schema".lash_processes),
    (SELECT coalesce(max(updated_at_ms), 0)::bigint FROM :"schema".lash_processes),
    (SELECT coalesce(sum(fencing + wake_seq), 0)::bigint FROM :"schema".lash_process_leases),
    (SELECT coalesce(max(seq), 0)::bigint FROM :"schema".lash_process_changes),
    (SELECT coalesce(max(updated_at_ms), 0)::bigint FROM :"schema".lash_effects),
    (SELECT coalesce(sum(fencing), 0)::bigint FROM :"schema".lash_effects),
    (SELECT coalesce(count(resolved_at_ms), 0)::bigint FROM :"schema".lash_waits),
    (SELECT coalesce(sum(revision), 0)::bigint FROM :"schema".lash_trigger_subscriptions),
    (SELECT coalesce(max(updated_at_ms), 0)::bigint FROM :"schema".lash_schedules),
    (SELECT coalesce(sum(attempts), 0)::bigint FROM :"schema".lash_trigger_deliveries),
    (SELECT coalesce(sum(version), 0)::bigint FROM :"schema".lash_attachment_fences),
    (SELECT coalesce(max(place), 0)::bigint FROM :"schema".lash_dead_letters),
    (SELECT coalesce(max(put_at_ms), 0)::bigint FROM :"schema".lash_artifacts);

-- name: rows_sequences
-- The last number that each table has assigned (NULL: none yet), and whether the role may read and set it; the server
-- hides it from a role that may not.
SELECT
    s.name, CASE WHEN s.allowed THEN pg_sequence_last_value(s.sequence) END, s.allowed
FROM (
    SELECT
        t.relname::text AS name,
        q.oid::regclass AS sequence,
        has_sequence_privilege(q.oid, 'SELECT') AND has_sequence_privilege(q.oid, 'UPDATE') AS allowed
    FROM pg_class AS t
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attidentity <> ''
    JOIN pg_class AS q ON q.oid = pg_get_serial_sequence(format('%I.%I', $1::text, t.relname), a.attname)::regclass
    WHERE n.nspname = $1 AND t.relname LIKE 'lash\_%' AND t.relkind = 'r'
) AS s
ORDER BY s.name;

-- name: rows_set_sequence
-- Lets new numbers of a table start above this one.
SELECT setval(pg_get_serial_sequence(format('%I.%I', $1::text, t.relname), a.attname)::regclass, $3::bigint)
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attidentity <> ''
WHERE n.nspname = $1 AND t.relname = $2::text;

-- name: rows_mark
-- The mark of an unfinished move into this storage.
SELECT secret FROM :"schema".lash_secrets WHERE name = 'move';

-- name: rows_forget_secrets
-- Removes the secrets of this storage; the move writes those of the source.
DELETE FROM :"schema".lash_secrets WHERE name <> 'move';

-- name: rows_begin
-- Writes the mark of a move, unless there is one.
INSERT INTO :"schema".lash_secrets (name, secret, created_at_ms)
VALUES ('move', $1, :"schema".lash_now_ms())
ON CONFLICT DO NOTHING;

-- name: rows_note
-- Replaces the mark of a move, unless another move has changed it.
UPDATE :"schema".lash_secrets SET secret = $1 WHERE name = 'move' AND secret = $2;

-- name: rows_finish
-- Removes the mark of a finished move, unless another move has changed it.
DELETE FROM :"schema".lash_secrets WHERE name = 'move' AND secret = $1;
