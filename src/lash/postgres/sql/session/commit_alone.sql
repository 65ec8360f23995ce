-- fragment: alone_held
-- The lease and the batches that the commit holds, and what must hold of them. A lease is locked before its batches,
-- and both before the session: the one order of commits, claims and deletions.
lease AS (
    SELECT l.owner_id, l.incarnation_id, l.token, l.fencing, l.expires_at_ms
    FROM :"schema".lash_session_leases AS l
    WHERE l.session_key = $1::bigint
    FOR NO KEY UPDATE OF l
),
-- Locked, because a claim that has run out may be taken over or cancelled without the head moving. Counting the leases
-- locks the lease first.
claimed AS (
    SELECT b.session_key, b.seq, b.source_key, b.batch_id
    FROM unnest($42::text[], $43::text[], $44::text[]) AS claim (token, id, batch_id)
    JOIN :"schema".lash_batches AS b ON b.session_key = $1::bigint AND b.claim_token = claim.token
        AND b.claim_id = claim.id AND b.batch_id = claim.batch_id
    WHERE (SELECT count(*) FROM lease) > 0
    ORDER BY b.seq
    FOR UPDATE OF b
),
guard AS MATERIALIZED (
    SELECT 1
    WHERE EXISTS (
            SELECT 1 FROM lease AS l
            WHERE $40::text[] IS NULL OR (
                l.owner_id = ($40::text[])[1] AND l.incarnation_id = ($40::text[])[2] AND l.token = ($40::text[])[3]
                AND l.fencing = (($40::text[])[4])::bigint AND l.expires_at_ms > :"schema".lash_now_ms()
            )
        )
        AND cardinality($44::text[]) = (SELECT count(*) FROM claimed)
        AND cardinality($44::text[]) = (
            SELECT count(*) FROM :"schema".lash_batches AS b
            WHERE b.session_key = $1::bigint AND b.claim_token = ANY ($42::text[])
        )
),

-- fragment: alone_head
-- The new head, if what must hold for every commit does.
new AS (
    UPDATE :"schema".lash_sessions AS s
    SET revision = $2::bigint + 1, config = $8::text, current_frame_id = $9::text, checkpoint_ref = $10::text,
        leaf_node_id = $11::text, leaf_segment = $12::bigint, leaf_depth = $13::bigint, segment_count = $14::bigint,
        node_seq = $15::bigint, node_count = $16::bigint, first_user_message = $17::text,
        user_message_count = $18::bigint, updated_at_ms = :"schema".lash_now_ms()

-- fragment: alone_guarded
-- What holds of the lease and the batches.
    FROM guard

-- fragment: alone_rest
-- The rest of the new head, and what every commit writes: nodes, the turn, the checkpoint in the place of the only one
-- that there was.
    WHERE s.session_key = $1::bigint AND s.revision = $2::bigint AND s.node_count = $3::bigint
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_turns AS t
            WHERE t.session_key = $1::bigint AND t.turn_id = $4::text
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS n
            WHERE n.session_key = $1::bigint AND n.node_id = ANY ($25::text[])
            OFFSET 0
        )
    RETURNING s.session_key, s.revision, s.updated_at_ms
),
-- Each node but the first follows the one before it; the row that is one too many has no id.
nodes AS (
    INSERT INTO :"schema".lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed
    )
    SELECT
        new.session_key, $21::bigint, $22::bigint + n.place, $23::bigint + n.place, n.node_id, n.parent_node_id,
        n.place = ANY ($26::bigint[]), n.body, n.packed
    FROM new
    CROSS JOIN unnest(
        $25::text[], array_prepend($24::text, $25::text[]), $27::text[], $28::bytea[]
    ) WITH ORDINALITY AS n (node_id, parent_node_id, body, packed, place)
    WHERE n.node_id IS NOT NULL
),
stamped AS (
    INSERT INTO :"schema".lash_turns (session_key, turn_id, commit_hash, result, committed_at_ms)
    SELECT new.session_key, $4::text, $5::text, $6::text, new.updated_at_ms
    FROM new
    WHERE $4::text IS NOT NULL
),
checkpoint AS (
    UPDATE :"schema".lash_checkpoints AS p
    SET revision = new.revision, checkpoint_ref = $10::text, turn_state = $19::text,
        plugin_snapshot_revision = $20::bigint
    FROM new
    WHERE p.session_key = $1::bigint AND p.revision = $2::bigint
),

-- fragment: alone_state
-- The ledger with its sums, and new bytes of components in the place of those that nothing names any more.
usage_rows AS (
    INSERT INTO :"schema".lash_usage (
        session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    )
    SELECT
        new.session_key, new.revision, u.place - 1, u.source, u.model, u.input_tokens, u.output_tokens,
        u.cached_input_tokens, u.reasoning_tokens
    FROM new
    CROSS JOIN unnest(
        $29::text[], $30::text[], $31::bigint[], $32::bigint[], $33::bigint[], $34::bigint[]
    ) WITH ORDINALITY AS u (
        source, model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, place
    )
    RETURNING *
),
usage_totals AS (
    INSERT INTO :"schema".lash_usage_totals AS t (
        session_key, source, model, first_revision, first_ordinal, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    )
    SELECT
        session_key, source, model, revision, ordinal, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    FROM usage_rows
    ON CONFLICT (session_key, source, model) DO UPDATE
    SET input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens,
        cached_input_tokens = t.cached_input_tokens + excluded.cached_input_tokens,
        reasoning_tokens = t.reasoning_tokens + excluded.reasoning_tokens
),
-- Found by their bytes, which no other component has: by less than these, all versions that a vacuum has yet to take
-- would be looked at. Naming them twice keeps the planner from it.
components AS (
    UPDATE :"schema".lash_components AS c
    SET first_revision = new.revision, hash = k.hash
    FROM new
    CROSS JOIN unnest($35::text[], $36::text[]) AS k (replaced, hash)
    WHERE c.session_key = $1::bigint AND c.hash = ANY ($35::text[]) AND c.hash = k.replaced
),
blobs AS (
    UPDATE :"schema".lash_blobs AS b
    SET hash = k.hash, codec = k.codec, size = k.size, content = k.content
    FROM new
    CROSS JOIN unnest(
        $35::text[], $36::text[], $37::text[], $38::bigint[], $39::bytea[]
    ) AS k (replaced, hash, codec, size, content)
    WHERE b.session_key = $1::bigint AND b.hash = ANY ($35::text[]) AND b.hash = k.replaced
),

-- fragment: alone_claims
-- What was claimed is done, and the lease given back.
-- Looked up by what was claimed and not by the session, whose queue may be long.
done AS MATERIALIZED (
    SELECT claimed.session_key, claimed.seq, claimed.source_key, claimed.batch_id, new.updated_at_ms
    FROM new
    CROSS JOIN claimed
),
consumed AS (
    DELETE FROM :"schema".lash_batches AS b
    USING done
    WHERE b.session_key = done.session_key AND b.seq = done.seq
),
settled_keys AS (
    UPDATE :"schema".lash_source_keys AS k
    SET state = 'consumed', settled_at_ms = done.updated_at_ms
    FROM done
    WHERE k.session_key = done.session_key AND k.source_key = done.source_key
),
acknowledged AS (
    UPDATE :"schema".lash_wakes AS w
    SET state = 'acknowledged'
    FROM done
    WHERE w.batch_id = done.batch_id AND w.state = 'queued'
),
released AS (
    UPDATE :"schema".lash_session_leases AS l
    SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, claimed_at_ms = 0, expires_at_ms = 0
    FROM new
    WHERE l.session_key = new.session_key AND l.owner_id = ($41::text[])[1] AND l.incarnation_id = ($41::text[])[2]
        AND l.token = ($41::text[])[3] AND l.fencing = (($41::text[])[4])::bigint
),

-- fragment: alone_end
-- What the turn recorded is history now; its effects before its groups, as all take them. The answer.
retired AS (
    DELETE FROM :"schema".lash_effects AS e USING new WHERE e.scope_id = $7::text RETURNING 1
),
retired_groups AS (
    DELETE FROM :"schema".lash_effect_groups AS g
    USING new, (SELECT count(*) AS number FROM retired) AS first
    WHERE g.scope_id = $7::text AND first.number >= 0
)
SELECT new.session_key, false FROM new;

-- name: commit_alone_nodes
-- One commit, written as commit_apply would, to a session that inherits nothing and has one checkpoint, without frames,
-- which goes with this commit. Its nodes follow each other on one segment that is there; it names no attachments and no
-- frames. Takes the session and what the plan saw of its head ($1 to $3), the turn ($4 to $7), the new head ($8 to $18),
-- the checkpoint ($19, $20); of the nodes their segment, the depth and the number before the first ($21 to $23), its
-- parent ($24), the ids ($25), which of them are messages of the user, counted from 1 ($26), the bodies ($27, $28).
-- This form has neither claims nor a ledger, and the components stay as they are.
WITH
-- include: alone_head
-- include: alone_rest
-- include: alone_end

-- name: commit_alone_state
-- The same with columns of the ledger ($29 to $34), of which no two have the same source and model, and of components
-- that get new bytes ($35 to $39: the hash of those that it had, and the blob), neither of which another one has.
WITH
-- include: alone_head
-- include: alone_rest
-- include: alone_state
-- include: alone_end

-- name: commit_alone_turns
-- The same with the fence that it shows and that of the lease that it gives back ($40, $41: owner, incarnation, token
-- and number, or NULL), and columns of the batches that it consumes ($42 to $44: the token and the id of the claim, the
-- batch).
WITH
-- include: alone_held
-- include: alone_head
-- include: alone_guarded
-- include: alone_rest
-- include: alone_state
-- include: alone_claims
-- include: alone_end
