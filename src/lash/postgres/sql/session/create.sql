-- name: session_create_committed
-- Creates a session with its lease row and its first commit, above the numbers of a deleted one of the same id; no row if
-- it exists, or if it would not start at the revision that the plan assumed. Nothing of a new session is stored yet, so
-- that nothing else is guarded.
--
-- The metadata, with the labels, and the commit as a record like those of commit_apply:
-- arguments: session_id, name, model, cwd, relation, owner, labels, metadata, expires_at_ms, label_keys, label_values, keep
-- arguments: assumed_revision, commit
-- Columns of its nodes and of its blobs:
-- arguments: segments, depths, seqs, node_ids, parent_ids, user_messages, bodies, packed_bodies, kinds, branches
-- arguments: blob_hashes, blob_codecs, blob_sizes, blob_contents
WITH clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
asked AS MATERIALIZED (
    SELECT c.*
    FROM json_to_record(:commit::json) AS c (
        turn_id text, commit_hash text, result text, trace text, config text, current_frame_id text, checkpoint_ref text,
        turn_state text, plugin_snapshot_revision bigint, leaf_node_id text, leaf_segment bigint, leaf_depth bigint,
        segment_count bigint, node_seq bigint, node_count bigint, first_user_message text, user_message_count bigint,
        agent text, segments json, components json, frames json, usage json
    )
),
-- The row of the id serialises creations and deletions.
taken AS (
    INSERT INTO :"schema".lash_session_ids AS i (session_id)
    SELECT :session_id::text
    WHERE :assumed_revision::bigint = 0
        OR EXISTS (SELECT 1 FROM :"schema".lash_session_ids AS k WHERE k.session_id = :session_id::text)
    ON CONFLICT (session_id) DO UPDATE
    SET revision = i.revision + 1, fencing = i.fencing + 1, deleted_at_ms = NULL
    WHERE i.deleted_at_ms IS NOT NULL AND i.revision + 1 = :assumed_revision::bigint
    RETURNING i.revision, i.fencing
),
new AS (
    INSERT INTO :"schema".lash_sessions (
        session_id, name, created_at_ms, model, cwd, relation, revision, config, current_frame_id, checkpoint_ref,
        leaf_node_id, leaf_segment, leaf_depth, segment_count, node_seq, node_count, first_user_message,
        user_message_count, updated_at_ms, owner, labels, metadata, expires_at_ms, agent, keep_checkpoints
    )
    SELECT
        :session_id::text, :name::text, clock.now_ms, :model::text, :cwd::text, :relation::text, taken.revision + 1,
        a.config, a.current_frame_id, a.checkpoint_ref, a.leaf_node_id, a.leaf_segment, a.leaf_depth, a.segment_count,
        a.node_seq, a.node_count, a.first_user_message, a.user_message_count, clock.now_ms, :owner::text,
        :labels::text, :metadata::text, :expires_at_ms::bigint, a.agent, :keep::bigint
    FROM clock, taken, asked AS a
    RETURNING
        session_key, session_id, name, created_at_ms, model, cwd, relation, revision, first_user_message,
        user_message_count, updated_at_ms, owner, labels, metadata, expires_at_ms, agent,
        keep_checkpoints
),
labelled AS (
    INSERT INTO :"schema".lash_session_labels (session_key, key, value)
    SELECT new.session_key, t.key, t.value
    FROM new
    CROSS JOIN unnest(:label_keys::text[], :label_values::text[]) AS t (key, value)
),
leased AS (
    INSERT INTO :"schema".lash_session_leases (session_key, fencing)
    SELECT new.session_key, taken.fencing
    FROM new, taken
),
segments AS (
    INSERT INTO :"schema".lash_segments (session_key, segment, parent_segment, parent_depth)
    SELECT new.session_key, (g ->> 0)::bigint, (g ->> 1)::bigint, (g ->> 2)::bigint
    FROM new, asked AS a
    CROSS JOIN LATERAL json_array_elements(a.segments) AS g
),
nodes AS (
    INSERT INTO :"schema".lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed, kind, begins_branch
    )
    SELECT new.session_key, n.*
    FROM new
    CROSS JOIN unnest(
        :segments::bigint[], :depths::bigint[], :seqs::bigint[], :node_ids::text[], :parent_ids::text[],
        :user_messages::boolean[], :bodies::text[], :packed_bodies::bytea[], :kinds::text[], :branches::boolean[]
    ) AS n
),
blobs AS (
    INSERT INTO :"schema".lash_blobs (session_key, hash, codec, size, content)
    SELECT new.session_key, b.*
    FROM new
    CROSS JOIN unnest(
        :blob_hashes::text[], :blob_codecs::text[], :blob_sizes::bigint[], :blob_contents::bytea[]
    ) AS b
),
components AS (
    INSERT INTO :"schema".lash_components (session_key, key, first_revision, hash)
    SELECT new.session_key, c.key, new.revision, c.value
    FROM new, asked AS a
    CROSS JOIN LATERAL json_each_text(a.components) AS c
),
checkpoint AS (
    INSERT INTO :"schema".lash_checkpoints (
        session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision
    )
    SELECT new.session_key, new.revision, a.checkpoint_ref, a.turn_state, a.plugin_snapshot_revision
    FROM new, asked AS a
),
frames AS (
    INSERT INTO :"schema".lash_frames (session_key, frame_id, position, body)
    SELECT new.session_key, k ->> 0, (k ->> 1)::bigint, k ->> 2
    FROM new, asked AS a
    CROSS JOIN LATERAL json_array_elements(a.frames) AS k
),
usage_rows AS (
    INSERT INTO :"schema".lash_usage (
        session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens, committed_at_ms, agent
    )
    SELECT
        new.session_key, new.revision, u.place - 1, u.row ->> 0, u.row ->> 1, (u.row ->> 2)::bigint,
        (u.row ->> 3)::bigint, (u.row ->> 4)::bigint, (u.row ->> 5)::bigint, new.updated_at_ms, a.agent
    FROM new, asked AS a
    CROSS JOIN LATERAL json_array_elements(a.usage) WITH ORDINALITY AS u (row, place)
    RETURNING *
),
usage_totals AS (
    INSERT INTO :"schema".lash_usage_totals (
        session_key, source, model, first_revision, first_ordinal, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    )
    SELECT
        session_key, source, model, min(revision), min(ordinal), sum(input_tokens)::bigint,
        sum(output_tokens)::bigint, sum(cached_input_tokens)::bigint, sum(reasoning_tokens)::bigint
    FROM usage_rows
    GROUP BY session_key, source, model
),
stamped AS (
    INSERT INTO :"schema".lash_turns (session_key, turn_id, commit_hash, result, trace, committed_at_ms)
    SELECT new.session_key, a.turn_id, a.commit_hash, a.result, a.trace, new.updated_at_ms
    FROM new, asked AS a
    WHERE a.turn_id IS NOT NULL
)
SELECT * FROM new;

-- name: session_existing
-- The metadata of a session, and the commit of a turn if it has one there; otherwise the revision from which a session
-- of this id would start.
SELECT
    (
        SELECT row(
            s.session_key, s.session_id, s.name, s.created_at_ms, s.model, s.cwd, s.relation, s.revision,
            s.first_user_message, s.user_message_count, s.updated_at_ms, s.owner, s.labels, s.metadata,
            s.expires_at_ms, s.agent, s.keep_checkpoints
        )
        FROM :"schema".lash_sessions AS s
        WHERE s.session_id = $1::text
    ),
    (
        SELECT row(t.commit_hash, t.result)
        FROM :"schema".lash_sessions AS s
        JOIN :"schema".lash_turns AS t ON t.session_key = s.session_key AND t.turn_id = $2::text
        WHERE s.session_id = $1::text
    ),
    coalesce(
        (
            SELECT i.revision + 1 FROM :"schema".lash_session_ids AS i
            WHERE i.session_id = $1::text AND i.deleted_at_ms IS NOT NULL
        ),
        0
    );
