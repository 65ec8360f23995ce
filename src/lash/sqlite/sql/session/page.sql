-- fragment: page_state
-- The state of a session. Every session has a lease row.
(
    SELECT CASE
        WHEN l.token IS NOT NULL AND l.expires_at_ms > :now_ms THEN 'running'
        WHEN l.waiting_for IS NOT NULL AND l.paused_until_ms > :now_ms THEN 'waiting'
        WHEN EXISTS (SELECT 1 FROM lash_batches AS b WHERE b.session_key = l.session_key) THEN 'queued'
        WHEN EXISTS (
            SELECT 1 FROM lash_waits AS w
            WHERE w.session_key = l.session_key AND w.session_key IS NOT NULL AND w.resolution IS NULL
        ) THEN 'waiting'
        ELSE 'idle'
    END
    FROM lash_session_leases AS l
    WHERE l.session_key = s.session_key
)

-- fragment: page_columns
-- The columns of a session in a list. The state, the counts and the checkpoint are read only if they are wanted.
SELECT
    s.session_key, s.session_id, s.name, s.created_at_ms, s.model, s.cwd, s.relation, s.revision, s.first_user_message,
    s.user_message_count, s.updated_at_ms, s.owner, s.labels, s.metadata, s.expires_at_ms, s.agent,
    s.keep_checkpoints, s.config,
    s.current_frame_id, s.leaf_node_id, s.checkpoint_ref, s.node_count,
    CASE WHEN :with_state THEN
-- include: page_state
    END,
    CASE
        WHEN :with_state THEN (
            SELECT l.waiting_for FROM lash_session_leases AS l
            WHERE l.session_key = s.session_key AND l.paused_until_ms > :now_ms
        )
    END,
    CASE WHEN :with_counts THEN (SELECT COUNT(*) FROM lash_batches AS b WHERE b.session_key = s.session_key) END,
    CASE WHEN :with_counts THEN (SELECT COUNT(*) FROM lash_dead_letters AS d WHERE d.session_key = s.session_key) END,
    CASE
        WHEN :with_counts THEN (
            SELECT COUNT(*) FROM lash_waits AS w
            WHERE w.session_key = s.session_key AND w.session_key IS NOT NULL AND w.resolution IS NULL
        )
    END,
    CASE
        WHEN :with_checkpoint THEN (
            SELECT p.turn_state FROM lash_checkpoints AS p WHERE p.session_key = s.session_key AND p.revision = s.revision
        )
    END,
    CASE
        WHEN :with_checkpoint THEN (
            SELECT p.plugin_snapshot_revision FROM lash_checkpoints AS p
            WHERE p.session_key = s.session_key AND p.revision = s.revision
        )
    END

-- fragment: page_filters
-- The parts of a filter by which the list is not read. terms is a JSON array of labels, or NULL.
    AND (:prefix IS NULL OR substr(s.session_id, 1, length(:prefix)) = :prefix)
    AND (:agent IS NULL OR s.agent = :agent)
    AND (:created_after_ms IS NULL OR s.created_at_ms > :created_after_ms)
    AND (:created_before_ms IS NULL OR s.created_at_ms < :created_before_ms)
    AND (:active_after_ms IS NULL OR s.updated_at_ms > :active_after_ms)
    AND (:active_before_ms IS NULL OR s.updated_at_ms < :active_before_ms)
    AND (:terms IS NULL OR NOT EXISTS (
        SELECT 1
        FROM json_each(:terms) AS t
        WHERE NOT EXISTS (
            SELECT 1 FROM lash_session_labels AS l
            WHERE l.session_key = s.session_key AND l.key = t.value ->> 0 AND l.value = t.value ->> 1
        )
    ))
    AND (:state IS NULL OR :state =
-- include: page_state
    )

-- fragment: page_sorted
-- The end of a list whose sessions are sorted after they are found: its position and order. Only keys are sorted; what
-- the page shows is read for the sessions on it.
    AND (
        CASE WHEN :by_activity THEN s.updated_at_ms ELSE 0 END * :sign, s.session_key * :sign
    ) > (:sorted_at, :sorted_key)
ORDER BY CASE WHEN :by_activity THEN s.updated_at_ms ELSE 0 END * :sign, s.session_key * :sign
LIMIT :limit
) AS page
CROSS JOIN lash_sessions AS s ON s.session_key = page.session_key
ORDER BY CASE WHEN :by_activity THEN s.updated_at_ms ELSE 0 END * :sign, s.session_key * :sign;

-- name: session_page_newest
-- Sessions that match the given filter, the last created first.
-- include: page_columns
FROM lash_sessions AS s
WHERE s.session_key < :key
-- include: page_filters
ORDER BY s.session_key DESC
LIMIT :limit;

-- name: session_page_oldest
-- session_page_newest, the first created first.
-- include: page_columns
FROM lash_sessions AS s
WHERE s.session_key > :key
-- include: page_filters
ORDER BY s.session_key
LIMIT :limit;

-- name: session_page_active_newest
-- Sessions that match the given filter, the last active first.
-- include: page_columns
FROM lash_sessions AS s INDEXED BY lash_sessions_active
WHERE s.updated_at_ms >= :first_ms AND s.updated_at_ms <= :last_ms
    AND (s.updated_at_ms < :at_ms OR s.session_key < :key)
-- include: page_filters
ORDER BY s.updated_at_ms DESC, s.session_key DESC
LIMIT :limit;

-- name: session_page_active_oldest
-- session_page_active_newest, the first active first.
-- include: page_columns
FROM lash_sessions AS s INDEXED BY lash_sessions_active
WHERE s.updated_at_ms >= :first_ms AND s.updated_at_ms <= :last_ms
    AND (s.updated_at_ms > :at_ms OR s.session_key > :key)
-- include: page_filters
ORDER BY s.updated_at_ms, s.session_key
LIMIT :limit;

-- name: session_page_agent_newest
-- session_page_newest, read by the agent.
-- include: page_columns
FROM lash_sessions AS s INDEXED BY lash_sessions_agent
WHERE s.agent = :agent AND s.session_key < :key
-- include: page_filters
ORDER BY s.session_key DESC
LIMIT :limit;

-- name: session_page_agent_oldest
-- session_page_oldest, read by the agent.
-- include: page_columns
FROM lash_sessions AS s INDEXED BY lash_sessions_agent
WHERE s.agent = :agent AND s.session_key > :key
-- include: page_filters
ORDER BY s.session_key
LIMIT :limit;

-- name: session_page_label_newest
-- session_page_newest, read by the owner or a label.
-- include: page_columns
FROM lash_session_labels AS lead INDEXED BY lash_session_labels_value
CROSS JOIN lash_sessions AS s ON s.session_key = lead.session_key
WHERE lead.key = :lead_key AND lead.value = :lead_value AND lead.session_key < :key
-- include: page_filters
ORDER BY lead.session_key DESC
LIMIT :limit;

-- name: session_page_label_oldest
-- session_page_oldest, read by the owner or a label.
-- include: page_columns
FROM lash_session_labels AS lead INDEXED BY lash_session_labels_value
CROSS JOIN lash_sessions AS s ON s.session_key = lead.session_key
WHERE lead.key = :lead_key AND lead.value = :lead_value AND lead.session_key > :key
-- include: page_filters
ORDER BY lead.session_key
LIMIT :limit;

-- name: session_page_label_active
-- Sessions of an owner or a label that match the rest of the filter, sorted by activity.
-- include: page_columns
FROM (
SELECT s.session_key
FROM lash_session_labels AS lead INDEXED BY lash_session_labels_value
CROSS JOIN lash_sessions AS s ON s.session_key = lead.session_key
WHERE lead.key = :lead_key AND lead.value = :lead_value
-- include: page_filters
-- include: page_sorted

-- name: session_ids
-- Ids in a range, in their order.
SELECT session_id
FROM lash_sessions
WHERE session_id >= :first AND session_id < :end
ORDER BY session_id
LIMIT :limit;

-- name: session_page_prefix
-- Sessions whose id begins with a text and that match the rest of the filter, sorted.
-- include: page_columns
FROM (
SELECT s.session_key
FROM lash_sessions AS s
WHERE s.session_id >= :prefix AND s.session_id < :prefix_end
-- include: page_filters
-- include: page_sorted

-- name: session_page_source
-- The forks of a session that match the rest of the filter, sorted.
-- include: page_columns
FROM (
SELECT s.session_key
FROM lash_sessions AS s INDEXED BY lash_sessions_source
WHERE s.relation ->> '$.relation.source_session_id' = :source_session_id
-- include: page_filters
-- include: page_sorted

-- name: session_page_search
-- Sessions that have all words of a search and match the rest of the filter, sorted.
-- include: page_columns
FROM (
SELECT s.session_key
FROM lash_sessions AS s
WHERE s.session_key IN (SELECT f.rowid FROM lashsearch AS f WHERE f.words MATCH :search)
    AND (:source_session_id IS NULL OR s.relation ->> '$.relation.source_session_id' = :source_session_id)
-- include: page_filters
-- include: page_sorted

-- name: session_page_state
-- Sessions that run, have queued input, or wait, and that match the rest of the filter, sorted.
-- include: page_columns
FROM (
SELECT s.session_key
FROM lash_sessions AS s
WHERE s.session_key IN (
        SELECT h.session_key FROM lash_session_leases AS h INDEXED BY lash_session_leases_holder
        WHERE :state = 'running' AND h.process IS NOT NULL
        UNION
        SELECT u.session_key FROM lash_session_leases AS u INDEXED BY lash_session_leases_unnamed
        WHERE :state = 'running' AND u.token IS NOT NULL AND u.process IS NULL
        UNION
        SELECT b.session_key FROM lash_batches AS b WHERE :state = 'queued'
        UNION
        SELECT w.session_key FROM lash_waits AS w INDEXED BY lash_waits_session
        WHERE :state = 'waiting' AND w.session_key IS NOT NULL AND w.resolution IS NULL
        UNION
        SELECT p.session_key FROM lash_session_leases AS p INDEXED BY lash_session_leases_parked
        WHERE :state = 'waiting' AND p.waiting_for IS NOT NULL
    )
-- include: page_filters
-- include: page_sorted

-- name: session_page_components
-- The components of the heads of some sessions (a JSON array of keys), with their bytes, without the execution states
-- of frames.
SELECT c.key, c.hash, b.codec, b.size, b.content, c.session_key
FROM json_each(:session_keys) AS wanted
CROSS JOIN lash_components AS c INDEXED BY lash_components_last ON c.session_key = wanted.value
    AND c.last_revision IS NULL
LEFT JOIN lash_blobs AS b ON b.session_key = c.session_key AND b.hash = c.hash
WHERE c.key NOT LIKE 'frame:%'
ORDER BY c.session_key, c.key;
