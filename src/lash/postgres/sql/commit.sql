-- name: commit_facts
-- What a plan must know about a commit of turn $2 that names the nodes $3, the refs $4, the claims of tokens $5 and ids
-- $6 and the attachments $7: the time, the head, the turn's commit if it has one, the lease, the stored ones of the
-- nodes (inherited ones lie on segment 0), the refs whose bytes are held, the batches that the claims hold, the
-- attachments that the session has, and whether a fork inherits from the session.
SELECT
    :"schema".lash_now_ms(),
    row(
        s.session_key, s.revision, s.config IS NOT NULL, s.leaf_node_id, s.leaf_segment, s.leaf_depth,
        s.leaf_segment IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS f
            WHERE f.session_key = s.session_key AND f.segment = s.leaf_segment AND f.depth = s.leaf_depth + 1
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_segments AS g
            WHERE g.session_key = s.session_key AND g.segment = s.leaf_segment AND g.closed
        ) AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_inherited AS i
            WHERE i.session_key = s.session_key AND s.leaf_segment = 0 AND i.ceiling > s.leaf_depth
        ),
        s.segment_count, s.node_seq, s.node_count, s.first_user_message, s.user_message_count
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
            )
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_segments AS g
                WHERE g.session_key = n.session_key AND g.segment = n.segment AND g.closed
            ),
            n.tombstoned_at_ms IS NOT NULL, n.body
        )
        FROM :"schema".lash_nodes AS n
        WHERE n.session_key = s.session_key AND n.node_id = ANY ($3::text[])
        UNION ALL
        SELECT row(
            n.node_id, n.parent_node_id, 0::bigint, n.depth,
            NOT EXISTS (
                SELECT 1 FROM :"schema".lash_inherited AS h
                WHERE h.session_key = s.session_key AND h.ceiling > n.depth
            )
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_nodes AS f
                WHERE f.session_key = s.session_key AND f.segment = 0 AND f.depth = n.depth + 1
            )
            AND NOT EXISTS (
                SELECT 1 FROM :"schema".lash_segments AS g
                WHERE g.session_key = s.session_key AND g.segment = 0 AND g.closed
            ),
            n.tombstoned_at_ms IS NOT NULL, n.body
        )
        FROM :"schema".lash_inherited AS i
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
    EXISTS (SELECT 1 FROM :"schema".lash_inherited AS i WHERE i.owner_key = s.session_key)
FROM :"schema".lash_sessions AS s
JOIN :"schema".lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = $1::text;

-- name: commit_lock_graph
-- Holds the head of a session whose graph is to be replaced, so that no fork can begin to inherit from it; no row if
-- the head is not as the plan saw it.
SELECT session_key FROM :"schema".lash_sessions
WHERE session_key = $1::bigint AND revision = $2::bigint AND node_count = $3::bigint
FOR NO KEY UPDATE;

-- name: commit_clear_graph
-- Deletes the whole graph of a session before it is replaced, unless a fork inherits from it.
DELETE FROM :"schema".lash_segments AS g
WHERE g.session_key = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM :"schema".lash_inherited AS i WHERE i.owner_key = $1::bigint);

-- name: commit_apply
-- A whole commit in one statement. It writes everything, or nothing when a fact of the plan no longer holds: the
-- revision $2 and node count $3 of the head (which stand for all facts about the graph), no commit for the turn yet,
-- a live lease under the fence, claims that hold exactly the batches to consume, no new node id taken, bytes for every
-- ref, every attachment announced. Answers the new revision, or no row.
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Locked first and by all, so that commits, claims and deletions take their locks in one order.
lease AS (
    SELECT l.owner_id, l.incarnation_id, l.token, l.fencing, l.expires_at_ms
    FROM :"schema".lash_session_leases AS l
    WHERE l.session_key = $1::bigint
        AND ($9::text IS NOT NULL OR $13::text IS NOT NULL OR cardinality($56::text[]) > 0)
    FOR NO KEY UPDATE
),
-- Locked, because a claim that has run out may be taken over or cancelled without the head moving.
claimed AS (
    SELECT b.seq, b.source_key, b.batch_id
    FROM unnest($54::text[], $55::text[], $56::text[]) AS claim (token, id, batch_id)
    JOIN :"schema".lash_batches AS b ON b.session_key = $1::bigint AND b.claim_token = claim.token
        AND b.claim_id = claim.id AND b.batch_id = claim.batch_id
    WHERE EXISTS (SELECT 1 FROM lease)
    ORDER BY b.seq
    FOR UPDATE OF b
),
-- Locked, because a sweep may take an attachment that is not committed without the head moving.
attachments AS (
    SELECT a.attachment_id
    FROM :"schema".lash_attachments AS a
    WHERE a.session_key = $1::bigint AND a.attachment_id = ANY ($57::text[])
    ORDER BY a.attachment_id
    FOR UPDATE
),
guard AS (
    SELECT clock.now_ms
    FROM clock
    WHERE NOT EXISTS (
            SELECT 1 FROM :"schema".lash_turns AS t WHERE t.session_key = $1::bigint AND t.turn_id = $4::text
        )
        AND ($9::text IS NULL OR EXISTS (
            SELECT 1 FROM lease AS l
            WHERE l.owner_id = $7::text AND l.incarnation_id = $8::text AND l.token = $9::text
                AND l.fencing = $10::bigint AND l.expires_at_ms > clock.now_ms
        ))
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS n
            WHERE n.session_key = $1::bigint AND n.node_id = ANY ($35::text[])
        )
        AND NOT EXISTS (
            SELECT 1
            FROM :"schema".lash_inherited AS i
            CROSS JOIN LATERAL (
                SELECT n.segment, n.depth FROM :"schema".lash_nodes AS n
                WHERE n.session_key = i.owner_key AND n.node_id = ANY ($35::text[])
                OFFSET 0
            ) AS n
            WHERE i.session_key = $1::bigint AND n.segment = i.segment AND n.depth > i.floor AND n.depth <= i.ceiling
        )
        AND cardinality($43::text[]) = (
            SELECT count(*) FROM :"schema".lash_blobs AS b
            WHERE b.session_key = $1::bigint AND b.hash = ANY ($43::text[])
        )
        AND ($13::text IS NULL OR EXISTS (SELECT 1 FROM lease))
        AND cardinality($56::text[]) = (SELECT count(*) FROM claimed)
        AND cardinality($56::text[]) = (
            SELECT count(*) FROM :"schema".lash_batches AS b
            WHERE b.session_key = $1::bigint AND b.claim_token = ANY ($54::text[])
        )
        AND cardinality($57::text[]) = (SELECT count(*) FROM attachments)
),
head AS (
    UPDATE :"schema".lash_sessions AS s
    SET revision = $2::bigint + 1, config = $15::text, current_frame_id = $16::text, checkpoint_ref = $17::text,
        leaf_node_id = $18::text, leaf_segment = $19::bigint, leaf_depth = $20::bigint, segment_count = $21::bigint,
        node_seq = $22::bigint, node_count = $23::bigint, first_user_message = $24::text,
        user_message_count = $25::bigint, updated_at_ms = guard.now_ms
    FROM guard
    WHERE s.session_key = $1::bigint AND s.revision = $2::bigint AND s.node_count = $3::bigint
    RETURNING s.session_key, s.revision, s.updated_at_ms
),
segments AS (
    INSERT INTO :"schema".lash_segments (session_key, segment, parent_segment, parent_depth)
    SELECT head.session_key, new.*
    FROM head, unnest($29::bigint[], $30::bigint[], $31::bigint[]) AS new
),
nodes AS (
    INSERT INTO :"schema".lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body
    )
    SELECT head.session_key, new.*
    FROM head, unnest(
        $32::bigint[], $33::bigint[], $34::bigint[], $35::text[], $36::text[], $37::boolean[], $38::text[]
    ) AS new
),
blobs AS (
    INSERT INTO :"schema".lash_blobs (session_key, hash, codec, size, content)
    SELECT head.session_key, new.*
    FROM head, unnest($39::text[], $40::text[], $41::bigint[], $42::bytea[]) AS new
    ON CONFLICT (session_key, hash) DO NOTHING
),
checkpoint AS (
    INSERT INTO :"schema".lash_checkpoints (
        session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision
    )
    SELECT head.session_key, head.revision, $17::text, $26::text, $27::bigint
    FROM head
),
dropped_checkpoints AS (
    DELETE FROM :"schema".lash_checkpoints AS p
    USING head
    WHERE p.session_key = head.session_key AND p.revision < $28::bigint
),
components AS (SELECT * FROM unnest($44::text[], $45::text[]) AS new (key, hash)),
expired_components AS (
    DELETE FROM :"schema".lash_components AS c
    USING head
    WHERE c.session_key = head.session_key AND c.last_revision < $28::bigint
    RETURNING c.key, c.first_revision, c.hash
),
-- A component that changed ends with the revision before this one; below the retention floor it is dropped at once.
replaced_components AS (
    DELETE FROM :"schema".lash_components AS c
    USING head
    WHERE c.session_key = head.session_key AND c.last_revision IS NULL AND head.revision - 1 < $28::bigint
        AND NOT EXISTS (SELECT 1 FROM components AS new WHERE new.key = c.key AND new.hash = c.hash)
    RETURNING c.key, c.first_revision, c.hash
),
dropped_components AS (SELECT * FROM expired_components UNION ALL SELECT * FROM replaced_components),
closed_components AS (
    UPDATE :"schema".lash_components AS c
    SET last_revision = head.revision - 1
    FROM head
    WHERE c.session_key = head.session_key AND c.last_revision IS NULL AND head.revision - 1 >= $28::bigint
        AND NOT EXISTS (SELECT 1 FROM components AS new WHERE new.key = c.key AND new.hash = c.hash)
),
opened_components AS (
    INSERT INTO :"schema".lash_components (session_key, key, first_revision, hash)
    SELECT head.session_key, new.key, head.revision, new.hash
    FROM head, components AS new
    WHERE NOT EXISTS (
        SELECT 1 FROM :"schema".lash_components AS c
        WHERE c.session_key = head.session_key AND c.key = new.key AND c.hash = new.hash AND c.last_revision IS NULL
    )
),
dropped_blobs AS (
    DELETE FROM :"schema".lash_blobs AS b
    USING head
    WHERE b.session_key = head.session_key AND b.hash IN (SELECT hash FROM dropped_components)
        AND b.hash <> ALL ($45::text[])
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_components AS c
            WHERE c.session_key = b.session_key AND c.hash = b.hash
                AND NOT EXISTS (
                    SELECT 1 FROM dropped_components AS d
                    WHERE d.key = c.key AND d.first_revision = c.first_revision
                )
        )
),
dropped_frames AS (
    DELETE FROM :"schema".lash_frames AS f
    USING head
    WHERE f.session_key = head.session_key AND f.frame_id <> ALL ($46::text[])
),
frames AS (
    INSERT INTO :"schema".lash_frames AS f (session_key, frame_id, position, body)
    SELECT head.session_key, new.frame_id, new.place - 1, new.body
    FROM head, unnest($46::text[], $47::text[]) WITH ORDINALITY AS new (frame_id, body, place)
    ON CONFLICT (session_key, frame_id) DO UPDATE SET position = excluded.position, body = excluded.body
    WHERE f.position <> excluded.position OR f.body <> excluded.body
),
usage AS (
    SELECT head.session_key, head.revision, new.*
    FROM head, unnest(
        $48::text[], $49::text[], $50::bigint[], $51::bigint[], $52::bigint[], $53::bigint[]
    ) WITH ORDINALITY AS new (source, model, input, output, cached, reasoning, place)
),
usage_rows AS (
    INSERT INTO :"schema".lash_usage (
        session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    )
    SELECT session_key, revision, place - 1, source, model, input, output, cached, reasoning
    FROM usage
),
usage_totals AS (
    INSERT INTO :"schema".lash_usage_totals AS t (
        session_key, source, model, first_revision, first_ordinal, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    )
    SELECT
        session_key, source, model, min(revision), min(place) - 1, sum(input)::bigint, sum(output)::bigint,
        sum(cached)::bigint, sum(reasoning)::bigint
    FROM usage
    GROUP BY session_key, source, model
    ON CONFLICT (session_key, source, model) DO UPDATE
    SET input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens,
        cached_input_tokens = t.cached_input_tokens + excluded.cached_input_tokens,
        reasoning_tokens = t.reasoning_tokens + excluded.reasoning_tokens
),
consumed AS (
    DELETE FROM :"schema".lash_batches AS b
    USING head, claimed
    WHERE b.session_key = head.session_key AND b.seq = claimed.seq
),
settled_keys AS (
    UPDATE :"schema".lash_source_keys AS k
    SET state = 'consumed', settled_at_ms = head.updated_at_ms
    FROM head, claimed
    WHERE k.session_key = head.session_key AND k.source_key = claimed.source_key
),
acknowledged AS (
    UPDATE :"schema".lash_wakes AS w
    SET state = 'acknowledged'
    FROM head, claimed
    WHERE w.batch_id = claimed.batch_id AND w.state = 'queued'
),
stamped_attachments AS (
    UPDATE :"schema".lash_attachments AS a
    SET committed_at_ms = coalesce(a.committed_at_ms, head.updated_at_ms)
    FROM head
    WHERE a.session_key = head.session_key AND a.attachment_id = ANY ($57::text[])
),
stamped AS (
    INSERT INTO :"schema".lash_turns (session_key, turn_id, commit_hash, result, committed_at_ms)
    SELECT head.session_key, $4::text, $5::text, $6::text, head.updated_at_ms
    FROM head
    WHERE $4::text IS NOT NULL
),
-- What the turn recorded is history now; its effects before its groups, as all take them.
retired AS (
    DELETE FROM :"schema".lash_effects AS e USING head WHERE e.scope_id = $58::text RETURNING 1
),
retired_groups AS (
    DELETE FROM :"schema".lash_effect_groups AS g
    USING head, (SELECT count(*) AS number FROM retired) AS first
    WHERE g.scope_id = $58::text AND first.number >= 0
),
released AS (
    UPDATE :"schema".lash_session_leases AS l
    SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0
    FROM head
    WHERE l.session_key = head.session_key AND l.owner_id = $11::text AND l.incarnation_id = $12::text
        AND l.token = $13::text AND l.fencing = $14::bigint
)
SELECT revision FROM head;
