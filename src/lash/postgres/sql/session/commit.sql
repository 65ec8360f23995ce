-- name: commit_turn
-- The commit that the turn $2 of a session has, NULL if it has none; no row if the session does not exist.
SELECT
    s.session_key,
    (
        SELECT row(t.commit_hash, t.result)
        FROM :"schema".lash_turns AS t
        WHERE t.session_key = s.session_key AND t.turn_id = $2::text
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;

-- name: commit_facts
-- The facts for a commit of turn $2 that names the nodes $3, the refs $4, the claims of tokens $5 and ids $6, and the
-- attachments $7, and changes the records with own flags $8, collections $9 and keys $10: the time, the head, the turn's commit if it has one, the lease, the given nodes that are stored
-- (inherited ones on segment 0), the given refs whose bytes are stored, the batches that the claims hold, the given
-- attachments that the session has, whether a fork inherits from the session, and the places and versions of the given
-- records that are stored and have not expired.
SELECT
    :"schema".lash_now_ms(),
    row(
        s.session_key, s.revision, s.config IS NOT NULL, s.leaf_node_id, s.leaf_segment, s.leaf_depth,
        s.leaf_segment IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS f
            WHERE f.session_key = s.session_key AND f.segment = s.leaf_segment AND f.depth = s.leaf_depth + 1
            OFFSET 0
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_segments AS g
            WHERE g.session_key = s.session_key AND g.segment = s.leaf_segment AND g.closed
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_inherited AS i
            JOIN :"schema".lash_runs AS r ON r.run_key = i.run_key
            WHERE i.session_key = s.session_key AND s.leaf_segment = 0 AND r.ceiling > s.leaf_depth
        ),
        s.segment_count, s.node_seq, s.node_count, s.first_user_message, s.user_message_count, s.keep_checkpoints
    ),
    (
        SELECT row(t.commit_hash, t.result)
        FROM :"schema".lash_turns AS t
        WHERE t.session_key = s.session_key AND t.turn_id = $2::text
    ),
    row(l.fencing, l.owner_id, l.incarnation_id, l.process, l.token, l.claimed_at_ms, l.expires_at_ms),
    array(
        SELECT row(
            n.node_id, n.parent_node_id, n.segment, n.depth,
            NOT EXISTS (
                SELECT 1 FROM :"schema".lash_nodes AS f
                WHERE f.session_key = n.session_key AND f.segment = n.segment AND f.depth = n.depth + 1
                OFFSET 0
            )
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_segments AS g
                WHERE g.session_key = n.session_key AND g.segment = n.segment AND g.closed
            ),
            n.tombstoned_at_ms IS NOT NULL, n.body, n.packed
        )
        FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.node_id = ANY ($3::text[])
        UNION ALL
        SELECT row(
            n.node_id, n.parent_node_id, 0::bigint, n.depth,
            NOT EXISTS (
                SELECT 1 FROM :"schema".lash_inherited AS h
                JOIN :"schema".lash_runs AS r ON r.run_key = h.run_key
                WHERE h.session_key = s.session_key AND r.ceiling > n.depth
            )
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_nodes AS f
                WHERE f.session_key = s.session_key AND f.segment = 0 AND f.depth = n.depth + 1
                OFFSET 0
            )
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_segments AS g
                WHERE g.session_key = s.session_key AND g.segment = 0 AND g.closed
            ),
            n.tombstoned_at_ms IS NOT NULL, n.body, n.packed
        )
        FROM :"schema".lash_runs_of(s.session_key) AS i
        CROSS JOIN LATERAL (
            SELECT * FROM :"schema".lash_nodes AS n
            WHERE n.session_key = i.owner_key AND n.node_id = ANY ($3::text[])
            OFFSET 0
        ) AS n
        WHERE i.session_key = s.session_key AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
    ),
    array(
        SELECT b.hash FROM :"schema".lash_blobs AS b
        WHERE b.session_key = s.session_key AND b.hash = ANY ($4::text[])
    ),
    array(
        SELECT row(b.claim_token, b.batch_id)
        FROM unnest($5::text[], $6::text[]) AS claim (token, id)
        JOIN :"schema".lash_batches AS b ON b.session_key = s.session_key AND b.claim_token = claim.token
            AND b.claim_id = claim.id
    ),
    array(
        SELECT a.attachment_id FROM :"schema".lash_attachments AS a
        WHERE a.session_key = s.session_key AND a.attachment_id = ANY ($7::text[])
    ),
    EXISTS (SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = s.session_key),
    array(
        SELECT row(a.place, r.version)
        FROM unnest($8::boolean[], $9::text[], $10::text[]) WITH ORDINALITY AS a (own, collection, key, place)
        CROSS JOIN LATERAL (
            SELECT r.version FROM :"schema".lash_records AS r
            WHERE r.scope_key = CASE WHEN a.own THEN s.session_key ELSE 0 END AND r.collection = a.collection
                AND r.key = a.key
                AND (r.expires_at_ms IS NULL OR r.expires_at_ms > (SELECT :"schema".lash_now_ms()))
            OFFSET 0
        ) AS r
    )
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = $1::text;

-- name: commit_lock_graph
-- Locks the head of a session whose graph is about to be replaced, so that no new fork can inherit from it; no row if
-- the head is not the one that the plan saw.
SELECT session_key FROM :"schema".lash_sessions
WHERE session_key = $1::bigint AND revision = $2::bigint AND node_count = $3::bigint
FOR NO KEY UPDATE;

-- name: commit_clear_graph
-- Deletes the whole graph of a session before it is replaced, unless a fork inherits from it. Counts the segments.
WITH nodes AS (
    DELETE FROM :"schema".lash_nodes AS n
    WHERE n.session_key = $1::bigint
        AND NOT EXISTS (SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = $1::bigint)
)
DELETE FROM :"schema".lash_segments AS g
WHERE g.session_key = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_runs AS i WHERE i.owner_key = $1::bigint);
