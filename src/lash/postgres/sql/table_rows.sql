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
    (SELECT coalesce(max(put_at_ms), 0)::bigint FROM :"schema".lash_artifacts),
    (SELECT coalesce(sum(version), 0)::bigint FROM :"schema".lash_records),
    (SELECT coalesce(max(updated_at_ms), 0)::bigint FROM :"schema".lash_records);

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

-- name: rows_mark
-- The mark of an unfinished move into this storage.
SELECT secret FROM :"schema".lash_secrets WHERE name = 'move';

-- name: rows_begin
-- Writes the mark of a move, begins the epoch $2 of the change feed, and removes the secrets of this storage, for which
-- the move writes those of the source; nothing if there is a mark. Returns how many marks were written.
WITH marked AS (
    INSERT INTO :"schema".lash_secrets (name, secret, created_at_ms)
    VALUES ('move', $1, :"schema".lash_now_ms())
    ON CONFLICT DO NOTHING
    RETURNING 1
),
forgotten AS (
    DELETE FROM :"schema".lash_secrets WHERE name <> 'move' AND EXISTS (SELECT 1 FROM marked)
),
begun AS (
    UPDATE :"schema".lash_process_change_epoch SET epoch = $2::text WHERE EXISTS (SELECT 1 FROM marked)
)
SELECT count(*) FROM marked;

-- name: rows_finish
-- Removes the mark of a finished move, and lets new numbers of each table $3 start above $4; nothing if another move has
-- changed the mark. Returns how many marks were removed.
WITH done AS (
    DELETE FROM :"schema".lash_secrets WHERE name = 'move' AND secret = $1 RETURNING 1
),
raised AS MATERIALIZED (
    SELECT setval(pg_get_serial_sequence(format('%I.%I', $2::text, t.relname), a.attname)::regclass, wanted.number)
    FROM done
    CROSS JOIN unnest($3::text[], $4::bigint[]) AS wanted (name, number)
    JOIN pg_class AS t ON t.relname = wanted.name
    JOIN pg_namespace AS n ON n.oid = t.relnamespace AND n.nspname = $2::text
    JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attidentity <> ''
)
SELECT (SELECT count(*) FROM done) FROM (SELECT count(*) FROM raised) AS numbers;
