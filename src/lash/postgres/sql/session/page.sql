-- fragment: page_columns
-- The columns of the sessions of a page. The state, the counts and the checkpoint are read only if they are wanted, and
-- after the page is cut: for no session beyond it.
SELECT
    s.session_key, s.session_id, s.name, s.created_at_ms, s.model, s.cwd, s.relation, s.revision, s.first_user_message,
    s.user_message_count, s.updated_at_ms, s.owner, s.labels, s.metadata, s.expires_at_ms, s.agent,
    s.keep_checkpoints, s.config,
    s.current_frame_id, s.leaf_node_id, s.checkpoint_ref, s.node_count, now.state, now.waiting_for,
    CASE
        WHEN :with_counts::boolean
        THEN (SELECT count(*) FROM :"schema".lash_batches AS b WHERE b.session_key = s.session_key)
    END,
    CASE
        WHEN :with_counts::boolean
        THEN (SELECT count(*) FROM :"schema".lash_dead_letters AS d WHERE d.session_key = s.session_key)
    END,
    CASE
        WHEN :with_counts::boolean
        THEN (
            SELECT count(*) FROM :"schema".lash_waits AS w
            WHERE w.session_key = s.session_key AND w.resolution IS NULL
        )
    END,
    CASE
        WHEN :with_checkpoint::boolean
        THEN (
            SELECT p.turn_state FROM :"schema".lash_checkpoints AS p
            WHERE p.session_key = s.session_key AND p.revision = s.revision
        )
    END,
    CASE
        WHEN :with_checkpoint::boolean
        THEN (
            SELECT p.plugin_snapshot_revision FROM :"schema".lash_checkpoints AS p
            WHERE p.session_key = s.session_key AND p.revision = s.revision
        )
    END,
    CASE
        WHEN :with_checkpoint::boolean
        THEN array(
            SELECT row(c.key, c.hash, b.codec, b.size, b.content)
            FROM :"schema".lash_components AS c
            LEFT JOIN :"schema".lash_blobs AS b ON b.session_key = c.session_key AND b.hash = c.hash
            WHERE c.session_key = s.session_key AND c.key NOT LIKE 'frame:%' AND c.last_revision IS NULL
            ORDER BY c.key
        )
    END
FROM (

-- fragment: page_state
-- The state of the session whose lease row is l. Every session has one.
CASE
    WHEN l.token IS NOT NULL AND l.expires_at_ms > (SELECT :"schema".lash_now_ms()) THEN 'running'
    WHEN l.waiting_for IS NOT NULL AND l.paused_until_ms > (SELECT :"schema".lash_now_ms()) THEN 'waiting'
    WHEN EXISTS (SELECT 1 FROM :"schema".lash_batches AS b WHERE b.session_key = l.session_key) THEN 'queued'
    WHEN EXISTS (
        SELECT 1 FROM :"schema".lash_waits AS w WHERE w.session_key = l.session_key AND w.resolution IS NULL
    ) THEN 'waiting'
    ELSE 'idle'
END

-- fragment: page_with_state
-- The end of a page: the state of its sessions, and what a parked turn waits for; NULL unless they are wanted. A page by
-- state shows the state that it was read by. LIMIT keeps this a look-up for each session: a join could read all leases.
) AS s
LEFT JOIN LATERAL (
    SELECT
        coalesce(:state::text,
-- include: page_state
        ) AS state,
        CASE WHEN l.paused_until_ms > (SELECT :"schema".lash_now_ms()) THEN l.waiting_for END AS waiting_for
    FROM :"schema".lash_session_leases AS l
    WHERE :with_state::boolean AND l.session_key = s.session_key
    LIMIT 1
) AS now ON true

-- fragment: page_filters
-- The parts of a filter by which the list is not read. The labels are NULL if there are none.
    AND (:prefix::text IS NULL OR starts_with(s.session_id, :prefix::text))
    AND (:agent::text IS NULL OR s.agent = :agent::text)
    AND (:created_after_ms::bigint IS NULL OR s.created_at_ms > :created_after_ms::bigint)
    AND (:created_before_ms::bigint IS NULL OR s.created_at_ms < :created_before_ms::bigint)
    AND (:active_after_ms::bigint IS NULL OR s.updated_at_ms > :active_after_ms::bigint)
    AND (:active_before_ms::bigint IS NULL OR s.updated_at_ms < :active_before_ms::bigint)
    AND (:label_keys::text[] IS NULL OR NOT EXISTS (
        SELECT 1
        FROM unnest(:label_keys::text[], :label_values::text[]) AS t (key, value)
        WHERE NOT EXISTS (
            SELECT 1 FROM :"schema".lash_session_labels AS l
            WHERE l.session_key = s.session_key AND l.key = t.key AND l.value = t.value
        )
    ))
    AND (:state::text IS NULL OR :state::text = (
        SELECT
-- include: page_state
        FROM :"schema".lash_session_leases AS l
        WHERE l.session_key = s.session_key
    ))

-- fragment: page_sorted
-- The order and the position of a list whose sessions are sorted after they are found.
    AND (
        CASE WHEN :by_activity::bigint = 1 THEN s.updated_at_ms ELSE 0 END * :sign::bigint,
        s.session_key * :sign::bigint
    ) > (:sorted_at::bigint, :sorted_key::bigint)
ORDER BY
    CASE WHEN :by_activity::bigint = 1 THEN s.updated_at_ms ELSE 0 END * :sign::bigint,
    s.session_key * :sign::bigint
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY
    CASE WHEN :by_activity::bigint = 1 THEN s.updated_at_ms ELSE 0 END * :sign::bigint,
    s.session_key * :sign::bigint;

-- name: session_page_newest
-- Sessions that match the given filter, the last created first.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.session_key < :key::bigint
-- include: page_filters
ORDER BY s.session_key DESC
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.session_key DESC;

-- name: session_page_oldest
-- session_page_newest, the first created first.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.session_key > :key::bigint
-- include: page_filters
ORDER BY s.session_key
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.session_key;

-- name: session_page_active_newest
-- Sessions that match the given filter, the last active first. The index orders them by seconds; the server sorts those
-- of one second.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: at_ms, key, first_ms, last_ms
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.active_s >= :first_ms::bigint / 1000 AND s.active_s <= :last_ms::bigint / 1000
    AND s.updated_at_ms >= :first_ms::bigint AND s.updated_at_ms <= :last_ms::bigint
    AND (s.updated_at_ms < :at_ms::bigint OR s.session_key < :key::bigint)
-- include: page_filters
ORDER BY s.active_s DESC, s.updated_at_ms DESC, s.session_key DESC
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.active_s DESC, s.updated_at_ms DESC, s.session_key DESC;

-- name: session_page_active_oldest
-- session_page_active_newest, the first active first.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: at_ms, key, first_ms, last_ms
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.active_s >= :first_ms::bigint / 1000 AND s.active_s <= :last_ms::bigint / 1000
    AND s.updated_at_ms >= :first_ms::bigint AND s.updated_at_ms <= :last_ms::bigint
    AND (s.updated_at_ms > :at_ms::bigint OR s.session_key > :key::bigint)
-- include: page_filters
ORDER BY s.active_s, s.updated_at_ms, s.session_key
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.active_s, s.updated_at_ms, s.session_key;

-- name: session_page_agent_newest
-- session_page_newest, read by the agent.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.agent = :agent::text AND s.session_key < :key::bigint
-- include: page_filters
ORDER BY s.agent DESC, s.session_key DESC
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.agent DESC, s.session_key DESC;

-- name: session_page_agent_oldest
-- session_page_oldest, read by the agent.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.agent = :agent::text AND s.session_key > :key::bigint
-- include: page_filters
ORDER BY s.agent, s.session_key
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.agent, s.session_key;

-- name: session_page_label_newest
-- session_page_newest, read by the owner or a label.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: lead_key, lead_value, key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_session_labels AS lead
JOIN :"schema".lash_sessions AS s ON s.session_key = lead.session_key
WHERE lead.key = :lead_key::text AND lead.value = :lead_value::text AND lead.session_key < :key::bigint
-- include: page_filters
ORDER BY lead.session_key DESC
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.session_key DESC;

-- name: session_page_label_oldest
-- session_page_oldest, read by the owner or a label.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: lead_key, lead_value, key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_session_labels AS lead
JOIN :"schema".lash_sessions AS s ON s.session_key = lead.session_key
WHERE lead.key = :lead_key::text AND lead.value = :lead_value::text AND lead.session_key > :key::bigint
-- include: page_filters
ORDER BY lead.session_key
LIMIT :limit::bigint
-- include: page_with_state
ORDER BY s.session_key;

-- name: session_page_label_active
-- Sessions of an owner or a label that match the rest of the filter, sorted by activity.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: lead_key, lead_value, by_activity, sign, sorted_at, sorted_key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_session_labels AS lead
JOIN :"schema".lash_sessions AS s ON s.session_key = lead.session_key
WHERE lead.key = :lead_key::text AND lead.value = :lead_value::text
-- include: page_filters
-- include: page_sorted

-- name: session_ids
-- Ids from $1 on and before $2, in the order of their bytes; at most $3.
SELECT session_id
FROM :"schema".lash_sessions
WHERE session_id COLLATE "C" >= $1::text AND session_id COLLATE "C" < $2::text
ORDER BY session_id COLLATE "C"
LIMIT $3::bigint;

-- name: session_page_prefix
-- Sessions whose id begins with a text and that match the rest of the filter, sorted.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: prefix_end, by_activity, sign, sorted_at, sorted_key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.session_id COLLATE "C" >= :prefix::text AND s.session_id COLLATE "C" < :prefix_end::text
-- include: page_filters
-- include: page_sorted

-- name: session_page_source
-- The forks of a session that match the rest of the filter, sorted.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: source_session_id, by_activity, sign, sorted_at, sorted_key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.relation::json #>> '{relation,source_session_id}' = :source_session_id::text
-- include: page_filters
-- include: page_sorted

-- name: session_page_search
-- Sessions that have all words of a search and match the rest of the filter, sorted.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: search, source_session_id, by_activity, sign, sorted_at, sorted_key
-- include: page_columns
SELECT s.*
FROM :"schema".lashsearch AS f
JOIN :"schema".lash_sessions AS s ON s.session_key = f.session_key
WHERE f.words @@ to_tsquery('pg_catalog.simple', :search::text)
    AND (
        :source_session_id::text IS NULL
        OR s.relation::json #>> '{relation,source_session_id}' = :source_session_id::text
    )
-- include: page_filters
-- include: page_sorted

-- name: session_page_state
-- Sessions that run, have queued input, or wait, and that match the rest of the filter, sorted.
-- arguments: with_state, with_counts, with_checkpoint, prefix, agent, state, created_after_ms, created_before_ms
-- arguments: active_after_ms, active_before_ms, label_keys, label_values, limit
-- arguments: by_activity, sign, sorted_at, sorted_key
-- include: page_columns
SELECT s.*
FROM :"schema".lash_sessions AS s
WHERE s.session_key IN (
        SELECT h.session_key FROM :"schema".lash_session_leases AS h
        WHERE :state::text = 'running' AND h.process IS NOT NULL
        UNION
        SELECT u.session_key FROM :"schema".lash_session_leases AS u
        WHERE :state::text = 'running' AND u.token IS NOT NULL AND u.process IS NULL
        UNION
        SELECT b.session_key FROM :"schema".lash_batches AS b WHERE :state::text = 'queued'
        UNION
        SELECT w.session_key FROM :"schema".lash_waits AS w
        WHERE :state::text = 'waiting' AND w.session_key IS NOT NULL AND w.resolution IS NULL
        UNION
        SELECT p.session_key FROM :"schema".lash_session_leases AS p
        WHERE :state::text = 'waiting' AND p.waiting_for IS NOT NULL
    )
-- include: page_filters
-- include: page_sorted
