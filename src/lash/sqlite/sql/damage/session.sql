-- Contradictions between the rows of sessions, which no write of lash makes: a subject and a detail, both texts.

-- name: damage_session_ids
-- Sessions whose id is not reserved, is marked as deleted, or has a number that the session has not reached.
SELECT s.session_id, CASE
    WHEN i.session_id IS NULL THEN 'its id is not reserved'
    WHEN i.deleted_at_ms IS NOT NULL THEN 'its id is marked as deleted'
    ELSE 'its revision is below the first one of its id'
END
FROM lash_sessions AS s
LEFT JOIN lash_session_ids AS i ON i.session_id = s.session_id
WHERE i.session_id IS NULL OR i.deleted_at_ms IS NOT NULL OR i.revision > s.revision
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_session_labels
-- Sessions whose rows to be found by are not their owner and labels. Labels that are not JSON count as none.
WITH wanted AS (
    SELECT s.session_key, t.key, t.value
    FROM lash_sessions AS s
    JOIN json_each(CASE WHEN json_valid(s.labels) THEN s.labels ELSE '{}' END) AS t
    UNION ALL
    SELECT s.session_key, '', s.owner FROM lash_sessions AS s WHERE s.owner IS NOT NULL
),
wrong AS (
    SELECT * FROM (SELECT * FROM wanted EXCEPT SELECT session_key, key, value FROM lash_session_labels)
    UNION
    SELECT * FROM (SELECT session_key, key, value FROM lash_session_labels EXCEPT SELECT * FROM wanted)
)
SELECT s.session_id, CASE WHEN w.key = '' THEN 'its owner' ELSE 'its label ' || w.key END
FROM wrong AS w
JOIN lash_sessions AS s ON s.session_key = w.session_key
GROUP BY s.session_id, w.key
ORDER BY s.session_id, w.key
LIMIT :limit;

-- name: damage_session_leases
-- Sessions without a lease row, or with a fencing number below the first one of their id.
SELECT s.session_id, CASE
    WHEN l.session_key IS NULL THEN 'it has no lease row'
    ELSE 'its fencing number is below the first one of its id'
END
FROM lash_sessions AS s
LEFT JOIN lash_session_leases AS l ON l.session_key = s.session_key
LEFT JOIN lash_session_ids AS i ON i.session_id = s.session_id
WHERE l.session_key IS NULL OR l.fencing < i.fencing
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_leaves
-- Sessions whose head names a node that is not at its place, own or inherited.
SELECT s.session_id, s.leaf_node_id
FROM lash_sessions AS s
WHERE s.leaf_node_id IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.segment = s.leaf_segment AND n.depth = s.leaf_depth
            AND n.node_id = s.leaf_node_id AND n.tombstoned_at_ms IS NULL
    )
    AND NOT EXISTS (
        WITH RECURSIVE inherited (session_key, owner_key, segment, floor, ceiling, next_key) AS (
            SELECT f.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
            FROM lash_inherited AS f
            CROSS JOIN lash_runs AS r ON r.run_key = f.run_key
            WHERE f.session_key = s.session_key
            UNION ALL
            SELECT h.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
            FROM inherited AS h
            CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
        )
        SELECT 1
        FROM inherited AS i
        JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
            AND n.depth > i.floor AND n.depth <= i.ceiling
        WHERE i.session_key = s.session_key AND s.leaf_segment = 0 AND n.depth = s.leaf_depth
            AND n.node_id = s.leaf_node_id
    )
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_node_counts
-- Sessions that count other nodes or user messages than they have.
WITH counted AS (
    SELECT
        s.session_id, s.node_count, s.user_message_count,
        (
            SELECT COUNT(*) FROM lash_nodes AS n
            WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NULL
        )
        + (
            WITH RECURSIVE inherited (session_key, owner_key, segment, floor, ceiling, next_key) AS (
                SELECT f.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
                FROM lash_inherited AS f
                CROSS JOIN lash_runs AS r ON r.run_key = f.run_key
                WHERE f.session_key = s.session_key
                UNION ALL
                SELECT h.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
                FROM inherited AS h
                CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
            )
            SELECT COUNT(*)
            FROM inherited AS i
            JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
                AND n.depth > i.floor AND n.depth <= i.ceiling
            WHERE i.session_key = s.session_key
        ) AS nodes,
        (
            SELECT COUNT(*) FROM lash_nodes AS n
            WHERE n.session_key = s.session_key AND n.tombstoned_at_ms IS NULL AND n.user_message
        )
        + (
            WITH RECURSIVE inherited (session_key, owner_key, segment, floor, ceiling, next_key) AS (
                SELECT f.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
                FROM lash_inherited AS f
                CROSS JOIN lash_runs AS r ON r.run_key = f.run_key
                WHERE f.session_key = s.session_key
                UNION ALL
                SELECT h.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
                FROM inherited AS h
                CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
            )
            SELECT COUNT(*)
            FROM inherited AS i
            JOIN lash_nodes AS n ON n.session_key = i.owner_key AND n.segment = i.segment
                AND n.depth > i.floor AND n.depth <= i.ceiling
            WHERE i.session_key = s.session_key AND n.user_message
        ) AS messages
    FROM lash_sessions AS s
)
SELECT
    session_id,
    CAST(node_count AS TEXT) || ' nodes and ' || CAST(user_message_count AS TEXT) || ' user messages, and has '
    || CAST(nodes AS TEXT) || ' and ' || CAST(messages AS TEXT)
FROM counted
WHERE node_count <> nodes OR user_message_count <> messages
ORDER BY session_id
LIMIT :limit;

-- name: damage_node_places
-- Nodes whose parent is not the node before them, or that are marked wrongly as the beginning of a branch. A vacuum may
-- have deleted the parent, and closed its segment.
WITH placed AS (
    SELECT
        n.session_key, n.node_id, n.parent_node_id, n.depth,
        n.begins_branch <> COALESCE(g.parent_depth = n.depth - 1, FALSE) AS misplaced,
        CASE WHEN n.depth - 1 > COALESCE(g.parent_depth, -1) THEN n.segment ELSE g.parent_segment END AS place
    FROM lash_nodes AS n
    JOIN lash_segments AS g ON g.session_key = n.session_key AND g.segment = n.segment
    WHERE n.depth > 0
),
followed AS (
    SELECT
        n.session_key, n.node_id, n.parent_node_id, n.misplaced, n.place,
        COALESCE(
            p.node_id,
            (
                WITH RECURSIVE inherited (session_key, owner_key, segment, floor, ceiling, next_key) AS (
                    SELECT f.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
                    FROM lash_inherited AS f
                    CROSS JOIN lash_runs AS r ON r.run_key = f.run_key
                    WHERE f.session_key = n.session_key
                    UNION ALL
                    SELECT o.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
                    FROM inherited AS o
                    CROSS JOIN lash_runs AS r ON r.run_key = o.next_key
                )
                SELECT h.node_id
                FROM inherited AS i
                JOIN lash_nodes AS h ON h.session_key = i.owner_key AND h.segment = i.segment
                    AND h.depth > i.floor AND h.depth <= i.ceiling
                WHERE i.session_key = n.session_key AND n.place = 0 AND h.depth = n.depth - 1
            )
        ) AS before
    FROM placed AS n
    LEFT JOIN lash_nodes AS p ON p.session_key = n.session_key AND p.segment = n.place
        AND p.depth = n.depth - 1
)
SELECT s.session_id, f.node_id
FROM followed AS f
JOIN lash_sessions AS s ON s.session_key = f.session_key
LEFT JOIN lash_segments AS g ON g.session_key = f.session_key AND g.segment = f.place
WHERE f.misplaced OR f.parent_node_id IS NULL OR f.before <> f.parent_node_id
    OR (f.before IS NULL AND NOT COALESCE(g.closed, FALSE))
ORDER BY s.session_id, f.node_id
LIMIT :limit;

-- name: damage_node_numbers
-- Sessions with nodes or segments beyond their counters, or with two nodes of one number.
SELECT s.session_id, CASE
    WHEN EXISTS (
        SELECT 1 FROM lash_segments AS g WHERE g.session_key = s.session_key AND g.segment > s.segment_count
    ) THEN 'it has a segment beyond its count'
    WHEN EXISTS (SELECT 1 FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.seq > s.node_seq)
        THEN 'it has a node beyond its count'
    ELSE 'two of its nodes have the same number'
END
FROM lash_sessions AS s
WHERE EXISTS (
        SELECT 1 FROM lash_segments AS g WHERE g.session_key = s.session_key AND g.segment > s.segment_count
    )
    OR EXISTS (SELECT 1 FROM lash_nodes AS n WHERE n.session_key = s.session_key AND n.seq > s.node_seq)
    OR EXISTS (
        SELECT 1 FROM lash_nodes AS n
        WHERE n.session_key = s.session_key
        GROUP BY n.seq
        HAVING COUNT(*) > 1
    )
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_segments
-- Segments that leave a segment which does not exist, or which is not older.
SELECT s.session_id, CAST(g.segment AS TEXT)
FROM lash_segments AS g
JOIN lash_sessions AS s ON s.session_key = g.session_key
WHERE g.parent_segment IS NOT NULL
    AND (
        g.parent_segment >= g.segment
        OR NOT EXISTS (
            SELECT 1 FROM lash_segments AS p
            WHERE p.session_key = g.session_key AND p.segment = g.parent_segment
        )
    )
ORDER BY s.session_id, g.segment
LIMIT :limit;

-- name: damage_inherited
-- Forks whose inherited path has a hole.
WITH RECURSIVE inherited (session_key, owner_key, segment, floor, ceiling, next_key) AS (
    SELECT f.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
    FROM lash_inherited AS f
    CROSS JOIN lash_runs AS r ON r.run_key = f.run_key
    UNION ALL
    SELECT h.session_key, r.owner_key, r.segment, r.floor, r.ceiling, r.next_key
    FROM inherited AS h
    CROSS JOIN lash_runs AS r ON r.run_key = h.next_key
),
runs AS (
    SELECT
        i.session_key, i.floor,
        LAG(i.ceiling) OVER (PARTITION BY i.session_key ORDER BY i.ceiling) AS before,
        i.ceiling - i.floor AS length,
        (
            SELECT COUNT(*) FROM lash_nodes AS n
            WHERE n.session_key = i.owner_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
        ) AS nodes
    FROM inherited AS i
)
SELECT DISTINCT s.session_id, ''
FROM runs AS r
JOIN lash_sessions AS s ON s.session_key = r.session_key
WHERE r.nodes <> r.length OR r.before <> r.floor
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_frames
-- Sessions whose current frame is missing, or whose frames are not numbered 0, 1, 2.
SELECT s.session_id, CASE
    WHEN s.current_frame_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM lash_frames AS f WHERE f.session_key = s.session_key AND f.frame_id = s.current_frame_id
    ) THEN 'its current frame is missing'
    ELSE 'its frames are not numbered without a gap'
END
FROM lash_sessions AS s
LEFT JOIN (
    SELECT
        session_key, COUNT(DISTINCT position) AS places, COUNT(*) AS number,
        MIN(position) AS low, MAX(position) AS high
    FROM lash_frames
    GROUP BY session_key
) AS c ON c.session_key = s.session_key
WHERE (
        s.current_frame_id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM lash_frames AS f
            WHERE f.session_key = s.session_key AND f.frame_id = s.current_frame_id
        )
    )
    OR c.places <> c.number OR c.low <> 0 OR c.high <> c.number - 1
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_checkpoints
-- Sessions whose head has no checkpoint or another one, and those with a checkpoint of a later revision.
SELECT s.session_id, CASE
    WHEN s.checkpoint_ref IS NULL THEN 'it has a checkpoint, and no commit'
    WHEN p.checkpoint_ref IS NULL THEN 'its head has no checkpoint'
    WHEN p.checkpoint_ref <> s.checkpoint_ref THEN 'its head names another checkpoint'
    ELSE 'it has a checkpoint of a later revision'
END
FROM lash_sessions AS s
LEFT JOIN lash_checkpoints AS p ON p.session_key = s.session_key AND p.revision = s.revision
WHERE s.checkpoint_ref IS DISTINCT FROM p.checkpoint_ref
    OR EXISTS (
        SELECT 1 FROM lash_checkpoints AS l WHERE l.session_key = s.session_key AND l.revision > s.revision
    )
ORDER BY s.session_id
LIMIT :limit;

-- name: damage_components
-- Components without bytes, with an impossible range of revisions, or with two values at one revision.
SELECT s.session_id, c.key
FROM lash_components AS c
JOIN lash_sessions AS s ON s.session_key = c.session_key
WHERE NOT EXISTS (SELECT 1 FROM lash_blobs AS b WHERE b.session_key = c.session_key AND b.hash = c.hash)
    OR c.last_revision < c.first_revision OR c.first_revision > s.revision OR c.last_revision >= s.revision
    OR EXISTS (
        SELECT 1 FROM lash_components AS o
        WHERE o.session_key = c.session_key AND o.key = c.key AND o.first_revision > c.first_revision
            AND o.first_revision <= COALESCE(c.last_revision, s.revision)
    )
ORDER BY s.session_id, c.key
LIMIT :limit;

-- name: damage_usage
-- Sessions whose totals of tokens are not the sums of their ledger.
WITH sums AS (
    SELECT
        session_key, source, model, SUM(input_tokens) AS input_tokens, SUM(output_tokens) AS output_tokens,
        SUM(cached_input_tokens) AS cached_input_tokens, SUM(reasoning_tokens) AS reasoning_tokens
    FROM (
        SELECT session_key, source, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens
        FROM lash_usage
        UNION ALL
        SELECT session_key, source, model, -input_tokens, -output_tokens, -cached_input_tokens, -reasoning_tokens
        FROM lash_usage_totals
    ) AS entries
    GROUP BY session_key, source, model
)
SELECT s.session_id, t.source || ' on ' || t.model
FROM sums AS t
JOIN lash_sessions AS s ON s.session_key = t.session_key
WHERE t.input_tokens <> 0 OR t.output_tokens <> 0 OR t.cached_input_tokens <> 0 OR t.reasoning_tokens <> 0
ORDER BY s.session_id, t.source, t.model
LIMIT :limit;

-- name: damage_ledgers
-- Sessions whose ledger has an entry of a later revision, or whose totals name a first entry that it does not have.
SELECT s.session_id, t.source || ' on ' || t.model
FROM lash_usage_totals AS t
JOIN lash_sessions AS s ON s.session_key = t.session_key
WHERE EXISTS (SELECT 1 FROM lash_usage AS u WHERE u.session_key = t.session_key AND u.revision > s.revision)
    OR NOT EXISTS (
        SELECT 1 FROM lash_usage AS u
        WHERE u.session_key = t.session_key AND u.revision = t.first_revision AND u.ordinal = t.first_ordinal
            AND u.source = t.source AND u.model = t.model
    )
ORDER BY s.session_id, t.source, t.model
LIMIT :limit;

-- name: damage_source_keys
-- Batches and dead letters whose source key is not reserved for them.
SELECT s.session_id, b.batch_id
FROM (
    SELECT session_key, batch_id, source_key FROM lash_batches
    UNION ALL
    SELECT session_key, batch_id, source_key FROM lash_dead_letters
) AS b
JOIN lash_sessions AS s ON s.session_key = b.session_key
WHERE b.source_key IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM lash_source_keys AS k
        WHERE k.session_key = b.session_key AND k.source_key = b.source_key AND k.batch_id = b.batch_id
            AND k.state = 'pending'
    )
ORDER BY s.session_id, b.batch_id
LIMIT :limit;

-- name: damage_pending_keys
-- Source keys that are pending without a batch or a dead letter.
SELECT s.session_id, k.source_key
FROM lash_source_keys AS k
JOIN lash_sessions AS s ON s.session_key = k.session_key
WHERE k.state = 'pending'
    AND NOT EXISTS (
        SELECT 1 FROM lash_batches AS b WHERE b.session_key = k.session_key AND b.batch_id = k.batch_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM lash_dead_letters AS d WHERE d.session_key = k.session_key AND d.batch_id = k.batch_id
    )
ORDER BY s.session_id, k.source_key
LIMIT :limit;

-- name: damage_claims
-- Batches that are dead letters as well, that a lease claims which was never given, or that wait for a turn that is not
-- parked.
SELECT s.session_id, b.batch_id
FROM lash_batches AS b
JOIN lash_sessions AS s ON s.session_key = b.session_key
LEFT JOIN lash_session_leases AS l ON l.session_key = b.session_key
WHERE b.claim_lease_fencing > l.fencing
    OR (b.available_at_ms = 9223372036854775807 AND l.waiting_for IS NULL)
    OR EXISTS (
        SELECT 1 FROM lash_dead_letters AS d WHERE d.session_key = b.session_key AND d.batch_id = b.batch_id
    )
ORDER BY s.session_id, b.batch_id
LIMIT :limit;
