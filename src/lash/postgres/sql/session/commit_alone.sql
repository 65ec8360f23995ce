-- fragment: alone_head
-- The new head; further conditions may follow.
new AS (
    UPDATE :"schema".lash_sessions AS s
    SET revision = :assumed_revision::bigint + 1, config = :config::text, current_frame_id = :current_frame_id::text,
        checkpoint_ref = :checkpoint_ref::text, leaf_node_id = :leaf_node_id::text,
        leaf_segment = :leaf_segment::bigint, leaf_depth = :leaf_depth::bigint, segment_count = :segment_count::bigint,
        node_seq = :node_seq::bigint, node_count = :node_count::bigint,
        first_user_message = :first_user_message::text, user_message_count = :user_message_count::bigint,
        updated_at_ms = :"schema".lash_now_ms(), agent = coalesce(:agent::text, s.agent),
        changed_xid = pg_current_xact_id()

-- fragment: alone_rest
-- The rest of the new head, nodes, turn, checkpoint, ledger and components.
    WHERE s.session_key = :session_key::bigint AND s.revision = :assumed_revision::bigint
        AND s.node_count = :assumed_node_count::bigint
        AND s.leaf_node_id IS NOT DISTINCT FROM :assumed_leaf_node_id::text
        AND s.keep_checkpoints IS NOT DISTINCT FROM :assumed_keep::bigint
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_turns AS t
            WHERE t.session_key = :session_key::bigint AND t.turn_id = :turn_id::text
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS n
            WHERE n.session_key = :session_key::bigint AND n.node_id = ANY (string_to_array(:node_ids::text, E'\x1f'))
            OFFSET 0
        )
    RETURNING s.session_key, s.revision, s.updated_at_ms, s.agent
),
-- Each node but the first follows the one before it. The parents are one more than the nodes; the last row has no id.
nodes AS (
    INSERT INTO :"schema".lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed, kind
    )
    SELECT
        new.session_key, :run_segment::bigint, :run_depth::bigint + n.place, :run_seq::bigint + n.place, n.node_id,
        n.parent_node_id, substr(:user_messages::text, n.place::integer, 1) = 'u', coalesce(n.body, ''), n.packed,
        coalesce(n.kind, 'message')
    FROM new
    CROSS JOIN unnest(
        string_to_array(:node_ids::text, E'\x1f'), array_prepend(:run_parent::text, string_to_array(:node_ids::text, E'\x1f')),
        string_to_array(:bodies::text, E'\x1f'), :packed_bodies::bytea[], string_to_array(:kinds::text, E'\x1f')
    ) WITH ORDINALITY AS n (node_id, parent_node_id, body, packed, kind, place)
    WHERE n.node_id IS NOT NULL
),
stamped AS (
    INSERT INTO :"schema".lash_turns (session_key, turn_id, commit_hash, result, trace, committed_at_ms)
    SELECT new.session_key, :turn_id::text, :commit_hash::text, :result::text, :trace::text, new.updated_at_ms
    FROM new
    WHERE :turn_id::text IS NOT NULL
),
checkpoint AS (
    UPDATE :"schema".lash_checkpoints AS p
    SET revision = new.revision, checkpoint_ref = :checkpoint_ref::text, turn_state = :turn_state::text,
        plugin_snapshot_revision = :plugin_snapshot_revision::bigint
    FROM new
    WHERE p.session_key = :session_key::bigint AND p.revision = :assumed_revision::bigint
),
usage_rows AS (
    INSERT INTO :"schema".lash_usage (
        session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens, committed_at_ms, agent
    )
    SELECT
        new.session_key, new.revision, u.place - 1, coalesce(u.source, ''), coalesce(u.model, ''), u.input_tokens,
        u.output_tokens, u.cached_input_tokens, u.reasoning_tokens, new.updated_at_ms, new.agent
    FROM new
    CROSS JOIN unnest(
        string_to_array(:usage_sources::text, E'\x1f'), string_to_array(:usage_models::text, E'\x1f'),
        string_to_array(:input_tokens::text, E'\x1f')::bigint[],
        string_to_array(:output_tokens::text, E'\x1f')::bigint[],
        string_to_array(:cached_input_tokens::text, E'\x1f')::bigint[],
        string_to_array(:reasoning_tokens::text, E'\x1f')::bigint[]
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
-- Found by hash, which no other component has. Found by session or key, every version that a vacuum has yet to remove
-- would be read. The hash is named twice to keep the planner from that.
components AS (
    UPDATE :"schema".lash_components AS c
    SET first_revision = new.revision, hash = k.hash
    FROM new
    CROSS JOIN unnest(string_to_array(:replaced_hashes::text, E'\x1f'), string_to_array(:new_hashes::text, E'\x1f')) AS k (replaced, hash)
    WHERE c.session_key = :session_key::bigint AND c.hash = ANY (string_to_array(:replaced_hashes::text, E'\x1f'))
        AND c.hash = k.replaced
),
blobs AS (
    UPDATE :"schema".lash_blobs AS b
    SET hash = k.hash, codec = coalesce(k.codec, ''), size = k.size, content = k.content
    FROM new
    CROSS JOIN unnest(
        string_to_array(:replaced_hashes::text, E'\x1f'), string_to_array(:new_hashes::text, E'\x1f'), string_to_array(:blob_codecs::text, E'\x1f'),
        string_to_array(:blob_sizes::text, E'\x1f')::bigint[], :blob_contents::bytea[]
    ) AS k (replaced, hash, codec, size, content)
    WHERE b.session_key = :session_key::bigint AND b.hash = ANY (string_to_array(:replaced_hashes::text, E'\x1f'))
        AND b.hash = k.replaced
),

-- fragment: alone_end
-- The effects that end with the turn; the answer.
-- The turn's effects end with it: first the effects, then their groups, as every statement locks them.
retired AS (
    DELETE FROM :"schema".lash_effects AS e USING new WHERE e.scope_id = :scope_id::text RETURNING 1
),
retired_groups AS (
    DELETE FROM :"schema".lash_effect_groups AS g
    USING new, (SELECT count(*) AS number FROM retired) AS first
    WHERE g.scope_id = :scope_id::text AND first.number >= 0
)
SELECT new.session_key, false FROM new;

-- name: commit_alone
-- Writes one ordinary turn, with the same effect as commit_turns: the session inherits nothing, its only checkpoint,
-- without frames, is replaced by this commit's, and the nodes follow each other on one existing segment. It shows no
-- fence, releases no lease and consumes no batches. Writes everything; or nothing, and returns no row, when a fact of
-- the plan no longer holds: the head's revision, node count, leaf and retention, no commit for the turn yet, no new node id taken.
--
-- The session, what the plan saw of its head, and the turn:
-- arguments: session_key, assumed_revision, assumed_node_count, assumed_leaf_node_id, assumed_keep
-- arguments: turn_id, commit_hash, result, trace, scope_id
-- The new head:
-- arguments: config, current_frame_id, checkpoint_ref, leaf_node_id, leaf_segment, leaf_depth, segment_count
-- arguments: node_seq, node_count, first_user_message, user_message_count, agent
-- The checkpoint:
-- arguments: turn_state, plugin_snapshot_revision
-- Columns are texts with a separator between the rows, or NULL without rows: the client inspects each element of an
-- array. Only bytes are in arrays.
-- The nodes: their segment, the depth and number before the first, its parent; then columns, except that user_messages
-- has one character for each node, u for a message of the user. packed_bodies is NULL if no body is packed, and kinds if
-- all nodes are messages.
-- arguments: run_segment, run_depth, run_seq, run_parent, node_ids, user_messages, bodies, packed_bodies, kinds
-- Columns of the ledger; no two rows have the same source and model:
-- arguments: usage_sources, usage_models, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens
-- Columns of the components that get new bytes; no other component has the old or the new hash:
-- arguments: replaced_hashes, new_hashes, blob_codecs, blob_sizes, blob_contents
WITH
-- include: alone_head
-- include: alone_rest
-- include: alone_end

-- name: commit_alone_leased
-- Writes the same and shows a fence, releases a lease or consumes batches; nothing is written either if the fence shows
-- no live lease, or if the claims do not hold exactly the batches to consume. The first arguments are those of
-- commit_alone:
-- arguments: session_key, assumed_revision, assumed_node_count, assumed_leaf_node_id, assumed_keep
-- arguments: turn_id, commit_hash, result, trace, scope_id
-- arguments: config, current_frame_id, checkpoint_ref, leaf_node_id, leaf_segment, leaf_depth, segment_count
-- arguments: node_seq, node_count, first_user_message, user_message_count, agent
-- arguments: turn_state, plugin_snapshot_revision
-- arguments: run_segment, run_depth, run_seq, run_parent, node_ids, user_messages, bodies, packed_bodies, kinds
-- arguments: usage_sources, usage_models, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens
-- arguments: replaced_hashes, new_hashes, blob_codecs, blob_sizes, blob_contents
-- The fence that it shows and the lease that it releases, or NULL, and columns of the batches that it consumes:
-- arguments: fence_owner, fence_incarnation, fence_token, fence_number
-- arguments: release_owner, release_incarnation, release_token, release_number
-- arguments: claim_tokens, claim_ids, claimed_batches
WITH
-- A lease is locked before its batches, and both before the session: the one order of commits, claims and deletions.
lease AS (
    SELECT l.owner_id, l.incarnation_id, l.token, l.fencing, l.expires_at_ms
    FROM :"schema".lash_session_leases AS l
    WHERE l.session_key = :session_key::bigint
    FOR NO KEY UPDATE OF l
),
-- Locked, because an expired claim may be taken over or cancelled without the head moving. Counting the leases locks
-- the lease first.
claimed AS (
    SELECT b.session_key, b.seq, b.source_key, b.batch_id
    FROM unnest(
        string_to_array(:claim_tokens::text, E'\x1f'), string_to_array(:claim_ids::text, E'\x1f'),
        string_to_array(:claimed_batches::text, E'\x1f')
    ) AS claim (token, id, batch_id)
    JOIN :"schema".lash_batches AS b ON b.session_key = :session_key::bigint AND b.claim_token = claim.token
        AND b.claim_id = claim.id AND b.batch_id = claim.batch_id
    WHERE (SELECT count(*) FROM lease) > 0
    ORDER BY b.seq
    FOR UPDATE OF b
),
guard AS MATERIALIZED (
    SELECT 1
    WHERE EXISTS (
            SELECT 1 FROM lease AS l
            WHERE :fence_token::text IS NULL OR (
                l.owner_id = :fence_owner::text AND l.incarnation_id = :fence_incarnation::text
                AND l.token = :fence_token::text AND l.fencing = :fence_number::bigint
                AND l.expires_at_ms > :"schema".lash_now_ms()
            )
        )
        AND coalesce(cardinality(string_to_array(:claimed_batches::text, E'\x1f')), 0) = (SELECT count(*) FROM claimed)
        AND coalesce(cardinality(string_to_array(:claimed_batches::text, E'\x1f')), 0) = (
            SELECT count(*) FROM :"schema".lash_batches AS b
            WHERE b.session_key = :session_key::bigint AND b.claim_token = ANY (string_to_array(:claim_tokens::text, E'\x1f'))
        )
),
-- include: alone_head
    FROM guard
-- include: alone_rest
-- Read from what was claimed, not from the session, whose queue may be long.
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
consumed_keys AS (
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
    WHERE l.session_key = new.session_key AND l.owner_id = :release_owner::text
        AND l.incarnation_id = :release_incarnation::text AND l.token = :release_token::text
        AND l.fencing = :release_number::bigint
),
-- include: alone_end
