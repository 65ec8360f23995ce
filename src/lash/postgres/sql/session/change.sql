-- fragment: changed_session
-- The columns of a session in the feed.
        SELECT row(
            s.session_key, s.session_id, s.name, s.created_at_ms, s.model, s.cwd, s.relation, s.revision,
            s.first_user_message, s.user_message_count, s.updated_at_ms, s.owner, s.labels, s.metadata,
            s.expires_at_ms, s.agent, s.keep_checkpoints, s.changed_xid::text::bigint
        )

-- name: session_changes
-- What changed after a cursor: sessions and deletions, at most the first :limit of each part. A cursor is a transaction
-- with the last session id that was read of it, and the transactions before it that were running then (late_numbers),
-- each with the last id that was read of it. Also returns the epoch of the feed, whether it has the change that the
-- cursor names or a later one of the same session, and the transactions that are running now.
--
-- The sessions come in three parts: those without a change in this epoch, in the order of their ids; those after the
-- cursor, from its page of the index on; those of the late transactions.
-- arguments: number, session_id, late_numbers, late_ids, limit
WITH late AS MATERIALIZED (
    SELECT l.number, l.number::text::xid8 AS xid, l.session_id
    FROM unnest(:late_numbers::bigint[], :late_ids::text[]) AS l (number, session_id)
)
SELECT
    coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), ''),
    EXISTS (
        SELECT 1 FROM :"schema".lash_sessions AS s
        WHERE s.session_id = :session_id::text AND s.changed_xid >= :number::bigint::text::xid8
    ) OR EXISTS (
        SELECT 1 FROM :"schema".lash_session_ids AS i
        WHERE i.session_id = :session_id::text AND i.changed_xid >= :number::bigint::text::xid8
    ),
    array(SELECT x::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS x),
    array(
-- include: changed_session
        FROM :"schema".lash_sessions AS s
        WHERE :number::bigint <= 2 AND s.changed_xid = '2'::xid8
            AND s.session_id COLLATE "C" > CASE WHEN :number::bigint = 2 THEN :session_id::text ELSE '' END
        ORDER BY s.session_id COLLATE "C"
        LIMIT :limit::bigint
    )
    || array(
-- include: changed_session
        FROM :"schema".lash_sessions AS s
        WHERE s.change_page >= :number::bigint / 1024
            AND (s.changed_xid, s.session_id COLLATE "C") > (:number::bigint::text::xid8, :session_id::text)
        ORDER BY s.change_page, s.changed_xid, s.session_id COLLATE "C"
        LIMIT :limit::bigint
    )
    || array(
-- include: changed_session
        FROM late
        JOIN :"schema".lash_sessions AS s ON s.change_page = late.number / 1024 AND s.changed_xid = late.xid
            AND s.session_id COLLATE "C" > late.session_id
        ORDER BY s.changed_xid, s.session_id COLLATE "C"
        LIMIT :limit::bigint
    ),
    array(
        SELECT row(i.session_id, i.revision, i.changed_xid::text::bigint)
        FROM :"schema".lash_session_ids AS i
        WHERE (i.changed_xid, i.session_id COLLATE "C") > (:number::bigint::text::xid8, :session_id::text)
            AND i.deleted_at_ms IS NOT NULL
        ORDER BY i.changed_xid, i.session_id COLLATE "C"
        LIMIT :limit::bigint
    )
    || array(
        SELECT row(i.session_id, i.revision, i.changed_xid::text::bigint)
        FROM late
        JOIN :"schema".lash_session_ids AS i ON i.changed_xid = late.xid AND i.session_id COLLATE "C" > late.session_id
        WHERE i.deleted_at_ms IS NOT NULL
        ORDER BY i.changed_xid, i.session_id COLLATE "C"
        LIMIT :limit::bigint
    );

-- name: session_changes_end
-- The last change of the feed, its epoch, and the transactions that are running now.
SELECT
    coalesce((SELECT g.epoch FROM :"schema".lash_process_change_epoch AS g), ''), e.xid::text::bigint, e.session_id,
    array(SELECT x::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS x)
FROM (
    (
        SELECT s.changed_xid AS xid, s.session_id
        FROM :"schema".lash_sessions AS s
        ORDER BY s.change_page DESC, s.changed_xid DESC, s.session_id COLLATE "C" DESC
        LIMIT 1
    )
    UNION ALL
    (
        SELECT i.changed_xid, i.session_id
        FROM :"schema".lash_session_ids AS i
        WHERE i.changed_xid IS NOT NULL AND i.deleted_at_ms IS NOT NULL
        ORDER BY i.changed_xid DESC, i.session_id COLLATE "C" DESC
        LIMIT 1
    )
    UNION ALL
    SELECT '0'::xid8, ''
) AS e
ORDER BY e.xid DESC, e.session_id COLLATE "C" DESC
LIMIT 1;
