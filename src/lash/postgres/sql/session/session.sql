-- name: session_key
-- The key of a session.
SELECT session_key FROM :"schema".lash_sessions WHERE session_id = $1::text;

-- name: session_create
-- Creates a session with its lease row and its labels ($10, $11) and retention ($12), above the numbers of a deleted one of the same id; no row if it exists. The row
-- of the id serialises creations and deletions.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
taken AS (
    INSERT INTO :"schema".lash_session_ids AS i (session_id)
    VALUES ($1::text)
    ON CONFLICT (session_id) DO UPDATE
    SET revision = i.revision + 1, fencing = i.fencing + 1, deleted_at_ms = NULL
    WHERE i.deleted_at_ms IS NOT NULL
    RETURNING i.revision, i.fencing
),
created AS (
    INSERT INTO :"schema".lash_sessions (
        session_id, name, created_at_ms, model, cwd, relation, revision, updated_at_ms, owner, labels, metadata,
        expires_at_ms, keep_checkpoints
    )
    SELECT
        $1::text, $2::text, clock.now_ms, $3::text, $4::text, $5::text, taken.revision, clock.now_ms, $6::text,
        $7::text, $8::text, $9::bigint, $12::bigint
    FROM clock, taken
    RETURNING
        session_key, session_id, name, created_at_ms, model, cwd, relation, revision, first_user_message,
        user_message_count, updated_at_ms, owner, labels, metadata, expires_at_ms, agent,
        keep_checkpoints
),
leased AS (
    INSERT INTO :"schema".lash_session_leases (session_key, fencing)
    SELECT created.session_key, taken.fencing
    FROM created, taken
),
labelled AS (
    INSERT INTO :"schema".lash_session_labels (session_key, key, value)
    SELECT created.session_key, t.key, t.value
    FROM created
    CROSS JOIN unnest($10::text[], $11::text[]) AS t (key, value)
)
SELECT * FROM created;

-- name: session_is_deleted
-- Whether a session of this id was deleted.
SELECT EXISTS (
    SELECT 1 FROM :"schema".lash_session_ids WHERE session_id = $1::text AND deleted_at_ms IS NOT NULL
);

-- name: session_meta
-- The metadata of one session.
SELECT
    session_key, session_id, name, created_at_ms, model, cwd, relation, revision, first_user_message,
    user_message_count, updated_at_ms, owner, labels, metadata, expires_at_ms, agent,
    keep_checkpoints
FROM :"schema".lash_sessions
WHERE session_id = $1::text;

-- name: session_change_meta
-- Changes the given parts of the metadata of one session, and the rows by which lists find it: that of the owner and
-- those of the labels, if they are given. Keys and values of these are new_keys and new_values. Returns a row if there
-- is such a session.
-- arguments: session_id, name, created_at_ms, model, relation, labels, metadata, set_cwd, cwd, set_owner, owner
-- arguments: set_expiry, expires_at_ms, set_keep, keep, new_keys, new_values
WITH changed AS (
    UPDATE :"schema".lash_sessions AS s
    SET name = coalesce(:name::text, s.name), created_at_ms = coalesce(:created_at_ms::bigint, s.created_at_ms),
        model = coalesce(:model::text, s.model), relation = coalesce(:relation::text, s.relation),
        labels = coalesce(:labels::text, s.labels), metadata = coalesce(:metadata::text, s.metadata),
        cwd = CASE WHEN :set_cwd::boolean THEN :cwd::text ELSE s.cwd END,
        owner = CASE WHEN :set_owner::boolean THEN :owner::text ELSE s.owner END,
        expires_at_ms = CASE WHEN :set_expiry::boolean THEN :expires_at_ms::bigint ELSE s.expires_at_ms END,
        keep_checkpoints = CASE WHEN :set_keep::boolean THEN :keep::bigint ELSE s.keep_checkpoints END,
        changed_xid = pg_current_xact_id()
    WHERE s.session_id = :session_id::text
    RETURNING s.session_key
),
-- A row that stays is changed in place: deleted and added again, it could meet itself.
dropped AS (
    DELETE FROM :"schema".lash_session_labels AS l
    USING changed
    WHERE l.session_key = changed.session_key AND l.key <> ALL (:new_keys::text[])
        AND ((l.key = '' AND :set_owner::boolean) OR (l.key <> '' AND :labels::text IS NOT NULL))
),
added AS (
    INSERT INTO :"schema".lash_session_labels AS l (session_key, key, value)
    SELECT changed.session_key, t.key, t.value
    FROM changed
    CROSS JOIN unnest(:new_keys::text[], :new_values::text[]) AS t (key, value)
    ON CONFLICT (session_key, key) DO UPDATE SET value = excluded.value WHERE l.value <> excluded.value
)
SELECT true FROM changed;

-- name: session_expired
-- Sessions whose expiry has passed and whose lease is not live, the first expired first; at most $1.
SELECT s.session_id
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
CROSS JOIN (SELECT :"schema".lash_now_ms() AS now_ms) AS clock
WHERE s.expires_at_ms <= clock.now_ms AND (l.token IS NULL OR l.expires_at_ms <= clock.now_ms)
ORDER BY s.expires_at_ms
LIMIT $1::bigint;

-- name: session_lock
-- Locks a session's lease row and then its own, in the order of commits; a wake can then neither be consumed nor
-- added. No row if only an expired session is wanted ($2) and this one is not, or if its lease is live.
WITH lease AS (
    SELECT l.session_key, l.fencing, l.token IS NOT NULL AND l.expires_at_ms > :"schema".lash_now_ms() AS live
    FROM :"schema".lash_sessions AS s
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    WHERE s.session_id = $1::text
    FOR UPDATE OF l
)
SELECT lease.session_key, lease.fencing
FROM lease
JOIN :"schema".lash_sessions AS s ON s.session_key = lease.session_key
WHERE NOT $2::boolean OR (s.expires_at_ms <= :"schema".lash_now_ms() AND NOT lease.live)
FOR UPDATE OF s;

-- fragment: ties
-- Whether the session a.session_id has schedules or subscriptions, and whether it has grants of processes or is woken by
-- them. ORDER BY instead of EXISTS, which may scan the rows of all sessions.
    (
        SELECT s.key FROM :"schema".lash_schedules AS s
        WHERE s.owner_session_id = a.session_id AND s.definition IS NOT NULL
        ORDER BY s.owner_session_id, s.key
        LIMIT 1
    ) IS NOT NULL OR (
        SELECT t.key FROM :"schema".lash_trigger_subscriptions AS t
        WHERE t.owner_session_id = a.session_id
        ORDER BY t.owner_session_id, t.key
        LIMIT 1
    ) IS NOT NULL AS has_declarations,
    (
        SELECT g.process_key FROM :"schema".lash_grants AS g
        WHERE g.session_id = a.session_id
        ORDER BY g.session_id, g.frame_id, g.process_key
        LIMIT 1
    ) IS NOT NULL OR (
        SELECT p.process_key FROM :"schema".lash_processes AS p
        WHERE p.wake_session_id = a.session_id
        ORDER BY p.wake_session_id, p.process_key
        LIMIT 1
    ) IS NOT NULL AS has_processes

-- name: session_ties
-- The same of one session that is about to be deleted.
SELECT
-- include: ties
FROM (SELECT $1::text AS session_id) AS a;

-- name: session_delete_untied
-- Deletes those of some sessions to which nothing of other nouns and no fork is tied, with everything that they own, and
-- keeps their last numbers. It runs twice in one transaction: first ($3 false) it locks the rows of the ids, then the
-- leases, then the sessions, each in the order of their keys. The second run ($3 true) sees what others committed while
-- the first one waited, and writes. A session that the first run did not lock stays: its rows may have changed since.
-- If only expired sessions are wanted ($2), any other and one whose lease is live stays. Returns a row for each id ($1),
-- in their order.
WITH ids AS (
    SELECT i.session_id
    FROM :"schema".lash_session_ids AS i
    WHERE i.session_id = ANY ($1::text[]) AND i.deleted_at_ms IS NULL
    ORDER BY i.session_id
    FOR UPDATE
),
lease AS (
    SELECT
        l.session_key, l.fencing, l.token IS NOT NULL AND l.expires_at_ms > :"schema".lash_now_ms() AS live,
        s.xmax = pg_current_xact_id()::xid AS was_locked
    FROM ids
    JOIN :"schema".lash_sessions AS s ON s.session_id = ids.session_id
    JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
    ORDER BY l.session_key
    FOR UPDATE OF l
),
held AS (
    SELECT
        s.session_key, s.session_id, lease.fencing, lease.was_locked,
        NOT $2::boolean OR (s.expires_at_ms <= :"schema".lash_now_ms() AND NOT lease.live) IS TRUE AS is_wanted
    FROM lease
    JOIN :"schema".lash_sessions AS s ON s.session_key = lease.session_key
    ORDER BY s.session_key
    FOR UPDATE OF s
),
-- Only the second run reads what is tied.
facts AS MATERIALIZED (
    SELECT
        a.place, a.session_id, $3::boolean AS is_second, held.session_key, held.fencing,
        coalesce(held.was_locked, false) AS was_locked, coalesce(held.is_wanted, NOT $2::boolean) AS is_wanted,
        CASE WHEN $3::boolean
            THEN ties.has_declarations OR ties.has_processes OR ties.is_woken OR ties.has_relatives
        END AS is_tied
    FROM unnest($1::text[]) WITH ORDINALITY AS a (session_id, place)
    LEFT JOIN held ON held.session_id = a.session_id
    CROSS JOIN LATERAL (
        SELECT
-- include: ties
            , (
                SELECT w.target_session_id FROM :"schema".lash_wakes AS w
                WHERE w.target_session_id = a.session_id AND w.state = 'queued'
                ORDER BY w.target_session_id
                LIMIT 1
            ) IS NOT NULL AS is_woken,
            (
                SELECT r.owner_key FROM :"schema".lash_runs AS r
                WHERE r.owner_key = held.session_key
                ORDER BY r.owner_key
                LIMIT 1
            ) IS NOT NULL OR (
                SELECT i.run_key FROM :"schema".lash_inherited AS i WHERE i.session_key = held.session_key
            ) IS NOT NULL AS has_relatives
    ) AS ties
),
doomed AS MATERIALIZED (
    SELECT f.session_key, f.session_id, f.fencing
    FROM facts AS f
    WHERE f.is_second AND f.was_locked AND f.is_wanted AND NOT f.is_tied
),
gone AS (
    DELETE FROM :"schema".lash_sessions AS s
    WHERE s.session_key = ANY (array(SELECT d.session_key FROM doomed AS d))
    RETURNING s.session_key, s.revision
),
nodes AS (
    DELETE FROM :"schema".lash_nodes AS n
    WHERE n.session_key = ANY (array(SELECT d.session_key FROM doomed AS d))
),
segments AS (
    DELETE FROM :"schema".lash_segments AS g
    WHERE g.session_key = ANY (array(SELECT d.session_key FROM doomed AS d))
),
buried AS (
    UPDATE :"schema".lash_session_ids AS i
    SET revision = gone.revision, fencing = d.fencing, deleted_at_ms = :"schema".lash_now_ms(),
        changed_xid = pg_current_xact_id()
    FROM gone
    JOIN doomed AS d ON d.session_key = gone.session_key
    WHERE i.session_id = d.session_id
    RETURNING i.session_id
)
SELECT f.session_id, b.session_id IS NOT NULL, f.session_key IS NOT NULL, f.is_wanted, f.is_tied
FROM facts AS f
LEFT JOIN buried AS b ON b.session_id = f.session_id
WHERE f.is_second
ORDER BY f.place;

-- name: session_bury
-- Deletes a locked session and, by cascade, all that it owns; keeps its last numbers. Its graph is deleted too if no
-- fork inherits from it: while it is locked, no new fork can. Returns whether one does, and the last run that it
-- inherits itself.
WITH gone AS (
    DELETE FROM :"schema".lash_sessions WHERE session_key = $1::bigint RETURNING session_id, revision
),
nodes AS (
    DELETE FROM :"schema".lash_nodes AS n
    WHERE n.session_key = $1::bigint
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = $1::bigint)
),
segments AS (
    DELETE FROM :"schema".lash_segments AS g
    WHERE g.session_key = $1::bigint
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = $1::bigint)
),
buried AS (
    UPDATE :"schema".lash_session_ids AS i
    SET revision = gone.revision, fencing = $2::bigint, deleted_at_ms = :"schema".lash_now_ms(),
        changed_xid = pg_current_xact_id()
    FROM gone
    WHERE i.session_id = gone.session_id
    RETURNING 1
)
SELECT
    EXISTS (SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = $1::bigint),
    (SELECT i.run_key FROM :"schema".lash_inherited AS i WHERE i.session_key = $1::bigint)
FROM buried;

-- fragment: head
-- What a commit needs of a session. The leaf is a tip if nothing follows it on its segment, nor ever did.
        s.session_key, s.revision, s.config IS NOT NULL, s.leaf_node_id, s.leaf_segment, s.leaf_depth,
        s.leaf_segment IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS f
            WHERE f.session_key = s.session_key AND f.segment = s.leaf_segment AND f.depth = s.leaf_depth + 1
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_segments AS g
            WHERE g.session_key = s.session_key AND g.segment = s.leaf_segment AND g.closed
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_inherited AS i
            JOIN :"schema".lash_runs AS r ON r.run_key = i.run_key
            WHERE i.session_key = s.session_key AND s.leaf_segment = 0 AND r.ceiling > s.leaf_depth
        ),
        s.segment_count, s.node_seq, s.node_count, s.first_user_message, s.user_message_count, s.keep_checkpoints

-- name: session_read
-- The head of one session, for readers and for writers.
SELECT
    row(
        s.session_key, s.session_id, s.revision, s.config, s.current_frame_id, s.leaf_node_id, s.checkpoint_ref,
        s.node_count, s.updated_at_ms
    ),
    row(
-- include: head
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- fragment: path
-- The session ($1) and, unless the whole graph is read ($2), the runs of nodes on its path to a node ($3, by default the
-- leaf), at most the last $4. A climb that reaches segment 0 continues along the inherited path.
WITH RECURSIVE s AS (SELECT * FROM :"schema".lash_sessions WHERE session_id = $1::text),
own_leaf AS (
    SELECT n.session_key, n.segment, n.depth
    FROM s
    JOIN :"schema".lash_nodes AS n ON n.session_key = s.session_key AND n.node_id = coalesce($3::text, s.leaf_node_id)
    WHERE NOT $2::boolean
),
leaf AS (
    SELECT * FROM own_leaf
    UNION ALL
    SELECT s.session_key, 0, n.depth
    FROM s
    JOIN :"schema".lash_runs_of(s.session_key) AS i ON i.session_key = s.session_key
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = i.owner_key AND n.node_id = coalesce($3::text, s.leaf_node_id)
        OFFSET 0
    ) AS n
    WHERE NOT $2::boolean AND NOT EXISTS (SELECT 1 FROM own_leaf)
        AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
),
climb AS (
    SELECT session_key, segment, depth AS ceiling, depth - $4::bigint AS floor FROM leaf
    UNION ALL
    SELECT c.session_key, g.parent_segment, g.parent_depth, c.floor
    FROM climb AS c
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_segments AS g
        WHERE g.session_key = c.session_key AND g.segment = c.segment
        OFFSET 0
    ) AS g
    WHERE g.parent_segment IS NOT NULL AND g.parent_depth > c.floor
),
inherited AS (
    SELECT r.owner_key, r.segment, r.floor, r.ceiling, r.next_key, c.ceiling AS top, c.floor AS bottom
    FROM climb AS c
    CROSS JOIN LATERAL (
        SELECT k.* FROM :"schema".lash_inherited AS i
        JOIN :"schema".lash_runs AS k ON k.run_key = i.run_key
        WHERE i.session_key = c.session_key
        OFFSET 0
    ) AS r
    WHERE c.segment = 0
    UNION ALL
    SELECT r.owner_key, r.segment, r.floor, r.ceiling, r.next_key, h.top, h.bottom
    FROM inherited AS h
    CROSS JOIN LATERAL (SELECT * FROM :"schema".lash_runs AS k WHERE k.run_key = h.next_key OFFSET 0) AS r
    WHERE h.floor > h.bottom
),
run AS (
    SELECT session_key, segment, ceiling, floor FROM climb
    UNION ALL
    SELECT owner_key, segment, least(ceiling, top), greatest(floor, bottom) FROM inherited WHERE floor < top
)

-- name: session_load
-- One revision of a session, on one snapshot: its head for readers, its graph (whole if $2, with the inherited nodes
-- before it; else the last $4 nodes of the path to $3 or to the leaf), frames, checkpoint and ledger, and its head for
-- writers. OFFSET 0 keeps the planner from scanning whole tables while they are small.
-- include: path
SELECT
    row(
        s.session_key, s.session_id, s.revision, s.config, s.current_frame_id, s.leaf_node_id, s.checkpoint_ref,
        s.node_count, s.updated_at_ms
    ),
    array(
        SELECT row(n.node_id, n.parent_node_id, n.depth, n.tombstoned_at_ms IS NOT NULL, n.body, n.packed)
        FROM :"schema".lash_runs_of(s.session_key) AS i
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n
            WHERE n.session_key = i.owner_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
            OFFSET 0
        ) AS n
        WHERE $2::boolean AND i.session_key = s.session_key
        ORDER BY n.depth
        LIMIT $4::bigint
    ),
    CASE WHEN $2::boolean
        THEN array(
            SELECT row(n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed)
            FROM :"schema".lash_nodes AS n
            WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NULL
            ORDER BY n.seq
            LIMIT $4::bigint
        )
        ELSE array(
            SELECT row(
                n.node_id, n.parent_node_id, n.depth, n.tombstoned_at_ms IS NOT NULL, n.body, n.packed,
                n.kind = 'erased'
            )
            FROM run AS r
            CROSS JOIN LATERAL (
                SELECT * FROM :"schema".lash_nodes AS n
                WHERE n.session_key = r.session_key AND n.segment = r.segment
                    AND n.depth <= r.ceiling AND n.depth > r.floor
                OFFSET 0
            ) AS n
            ORDER BY n.depth
        )
    END,
    array(
        SELECT row(f.frame_id, f.position, f.body)
        FROM :"schema".lash_frames AS f
        WHERE f.session_key = s.session_key
        ORDER BY f.position
    ),
    (
        SELECT row(p.revision, p.checkpoint_ref, p.turn_state, p.plugin_snapshot_revision)
        FROM :"schema".lash_checkpoints AS p
        WHERE p.session_key = s.session_key AND p.revision = s.revision
    ),
    array(
        SELECT row(c.key, c.hash, b.codec, b.size, b.content)
        FROM :"schema".lash_components AS c
        LEFT JOIN :"schema".lash_blobs AS b ON b.session_key = c.session_key AND b.hash = c.hash
        WHERE c.session_key = s.session_key AND c.key NOT LIKE 'frame:%' AND c.last_revision IS NULL
        ORDER BY c.key
    ),
    array(
        SELECT row(
            t.source, t.model, t.input_tokens, t.output_tokens, t.cached_input_tokens, t.reasoning_tokens
        )
        FROM :"schema".lash_usage_totals AS t
        WHERE t.session_key = s.session_key
        ORDER BY t.first_revision, t.first_ordinal
    ),
    row(
-- include: head
    )
FROM s;

-- name: session_nodes
-- The same nodes, with the revision that they belong to: for a graph or path that is too long for one row. A row has the
-- columns of up to 500 of them as arrays, which the driver decodes into far fewer objects than rows.
-- include: path
SELECT
    s.revision, n.inherited, array_agg(n.node_id ORDER BY n.place), array_agg(n.parent_node_id ORDER BY n.place),
    array_agg(n.depth ORDER BY n.place), array_agg(n.tombstoned ORDER BY n.place), array_agg(n.body ORDER BY n.place),
    array_agg(n.packed ORDER BY n.place), array_agg(n.erased ORDER BY n.place)
FROM s
CROSS JOIN LATERAL (
    SELECT
        true AS inherited, n.depth AS place, n.node_id, n.parent_node_id, n.depth,
        n.tombstoned_at_ms IS NOT NULL AS tombstoned, n.body, n.packed, false AS erased
    FROM :"schema".lash_runs_of(s.session_key) AS i
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = i.owner_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
        OFFSET 0
    ) AS n
    WHERE $2::boolean AND i.session_key = s.session_key
    UNION ALL
    SELECT false, n.seq, n.node_id, n.parent_node_id, n.depth, false, n.body, n.packed, false
    FROM :"schema".lash_nodes AS n
    WHERE $2::boolean AND n.session_key = s.session_key AND n.tombstoned_at_ms IS NULL
    UNION ALL
    SELECT
        false, n.depth, n.node_id, n.parent_node_id, n.depth, n.tombstoned_at_ms IS NOT NULL, n.body, n.packed,
        n.kind = 'erased'
    FROM run AS r
    CROSS JOIN LATERAL (
        SELECT * FROM :"schema".lash_nodes AS n
        WHERE n.session_key = r.session_key AND n.segment = r.segment AND n.depth <= r.ceiling AND n.depth > r.floor
        OFFSET 0
    ) AS n
) AS n
GROUP BY s.revision, n.inherited, n.place / 500
ORDER BY n.inherited DESC, n.place / 500;
