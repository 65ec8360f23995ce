-- fragment: commit_asked
-- The commits, and the leases and batches that they hold, locked.
clock AS (SELECT :"schema".lash_now_ms() AS now_ms),
-- Each commit with its position among the records and the range of its nodes.
asked AS MATERIALIZED (
    SELECT
        c.*, coalesce((:node_ends::integer[])[c.place - 1], 0) + 1 AS first_node,
        (:node_ends::integer[])[c.place] AS last_node
    FROM ROWS FROM (
        json_to_recordset(:commits::json) AS (
            session_key bigint, assumed_revision bigint, assumed_node_count bigint, assumed_leaf_node_id text,
            assumed_keep bigint,
            turn_id text, commit_hash text, result text, trace text, scope_id text, fence json, release json, config text, current_frame_id text,
            checkpoint_ref text, turn_state text, plugin_snapshot_revision bigint, retention_floor bigint,
            leaf_node_id text, leaf_segment bigint, leaf_depth bigint, segment_count bigint, node_seq bigint,
            node_count bigint, first_user_message text, user_message_count bigint, agent text, segments json, refs json,
            components json, frames json, usage json, claims json, attachments json, replaced json
        )
    ) WITH ORDINALITY AS c (
        session_key, assumed_revision, assumed_node_count, assumed_leaf_node_id, assumed_keep, turn_id, commit_hash, result,
        trace, scope_id, fence, release, config, current_frame_id, checkpoint_ref, turn_state, plugin_snapshot_revision, retention_floor, leaf_node_id,
        leaf_segment, leaf_depth, segment_count, node_seq, node_count, first_user_message, user_message_count, agent,
        segments, refs, components, frames, usage, claims, attachments, replaced, place
    )
    LIMIT :max_together::bigint
),
-- A lease is locked before its batches, and both before the session: the one order of commits, claims and deletions.
lease AS (
    SELECT l.session_key, l.owner_id, l.incarnation_id, l.token, l.fencing, l.expires_at_ms
    FROM asked AS a
    JOIN :"schema".lash_session_leases AS l ON l.session_key = a.session_key
    WHERE a.fence IS NOT NULL OR a.release IS NOT NULL OR a.claims IS NOT NULL
    ORDER BY l.session_key
    FOR NO KEY UPDATE OF l
),
-- Locked, because an expired claim may be taken over or cancelled without the head moving. Counting the leases locks
-- all of them before any batch.
claimed AS (
    SELECT b.session_key, b.seq, b.source_key, b.batch_id
    FROM asked AS a
    CROSS JOIN LATERAL json_array_elements(a.claims) AS claim
    JOIN :"schema".lash_batches AS b ON b.session_key = a.session_key AND b.claim_token = claim ->> 0
        AND b.claim_id = claim ->> 1 AND b.batch_id = claim ->> 2
    WHERE (SELECT count(*) FROM lease) > 0
    ORDER BY b.session_key, b.seq
    FOR UPDATE OF b
),

-- fragment: commit_guard
-- What must hold for every commit; further conditions may follow. Materialised, so that the sessions are looked up for
-- the commits that pass, and not scanned because of what the conditions are estimated to cost.
guard AS MATERIALIZED (
    SELECT a.session_key, a.assumed_revision, a.assumed_node_count, a.assumed_leaf_node_id, a.assumed_keep,
        clock.now_ms
    FROM asked AS a, clock
    WHERE NOT EXISTS (
            SELECT 1 FROM :"schema".lash_turns AS t
            WHERE t.session_key = a.session_key AND t.turn_id = a.turn_id
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_nodes AS n
            WHERE n.session_key = a.session_key AND n.node_id = ANY ((:node_ids::text[])[a.first_node:a.last_node])
            OFFSET 0
        )
        AND NOT EXISTS (
            SELECT 1
            FROM :"schema".lash_runs_of(a.session_key) AS i
            CROSS JOIN LATERAL (
                SELECT n.segment, n.depth FROM :"schema".lash_nodes AS n
                WHERE n.session_key = i.owner_key AND n.node_id = ANY ((:node_ids::text[])[a.first_node:a.last_node])
                OFFSET 0
            ) AS n
            WHERE i.session_key = a.session_key AND n.segment = i.segment AND n.depth > i.floor
                AND n.depth <= i.ceiling
            OFFSET 0
        )
        AND (a.fence IS NULL OR EXISTS (
            SELECT 1 FROM lease AS l
            WHERE l.session_key = a.session_key AND l.owner_id = a.fence ->> 0 AND l.incarnation_id = a.fence ->> 1
                AND l.token = a.fence ->> 2 AND l.fencing = (a.fence ->> 3)::bigint AND l.expires_at_ms > clock.now_ms
        ))
        AND (a.release IS NULL OR EXISTS (SELECT 1 FROM lease AS l WHERE l.session_key = a.session_key))
        AND (a.claims IS NULL OR (
            json_array_length(a.claims) = (SELECT count(*) FROM claimed WHERE claimed.session_key = a.session_key)
            AND json_array_length(a.claims) = (
                SELECT count(*) FROM :"schema".lash_batches AS b
                WHERE b.session_key = a.session_key
                    AND b.claim_token = ANY (array(SELECT c ->> 0 FROM json_array_elements(a.claims) AS c))
            )
        ))

-- fragment: commit_held
-- The end of the guard, and the sessions, locked.
),
-- In the order of their keys, so that two statements with the same sessions cannot deadlock.
held AS (
    SELECT s.session_key, guard.now_ms
    FROM guard
    JOIN :"schema".lash_sessions AS s ON s.session_key = guard.session_key
    WHERE s.revision = guard.assumed_revision AND s.node_count = guard.assumed_node_count
        AND s.leaf_node_id IS NOT DISTINCT FROM guard.assumed_leaf_node_id
        AND s.keep_checkpoints IS NOT DISTINCT FROM guard.assumed_keep
    ORDER BY s.session_key
    FOR NO KEY UPDATE OF s
),

-- fragment: commit_new
-- The new heads, each with its commit; further conditions may follow.
new AS (
    UPDATE :"schema".lash_sessions AS s
    SET revision = a.assumed_revision + 1, config = a.config, current_frame_id = a.current_frame_id,
        checkpoint_ref = a.checkpoint_ref, leaf_node_id = a.leaf_node_id, leaf_segment = a.leaf_segment,
        leaf_depth = a.leaf_depth, segment_count = a.segment_count, node_seq = a.node_seq, node_count = a.node_count,
        first_user_message = a.first_user_message, user_message_count = a.user_message_count,
        updated_at_ms = held.now_ms, agent = coalesce(a.agent, s.agent), changed_xid = pg_current_xact_id()
    FROM held
    JOIN asked AS a ON a.session_key = held.session_key
    WHERE s.session_key = held.session_key AND s.revision = a.assumed_revision
        AND s.node_count = a.assumed_node_count

-- fragment: commit_new_end
-- The end of the new heads.
    RETURNING s.revision, s.updated_at_ms, s.agent AS kept_agent, a.*
),

-- fragment: commit_ledger
-- The ledger with its totals, the batches that are consumed, and the leases that are released.
usage_rows AS (
    INSERT INTO :"schema".lash_usage (
        session_key, revision, ordinal, source, model, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens, committed_at_ms, agent
    )
    SELECT
        new.session_key, new.revision, u.place - 1, u.row ->> 0, u.row ->> 1, (u.row ->> 2)::bigint,
        (u.row ->> 3)::bigint, (u.row ->> 4)::bigint, (u.row ->> 5)::bigint, new.updated_at_ms,
        new.kept_agent
    FROM new
    CROSS JOIN LATERAL json_array_elements(new.usage) WITH ORDINALITY AS u (row, place)
    WHERE new.usage IS NOT NULL
    RETURNING *
),
usage_totals AS (
    INSERT INTO :"schema".lash_usage_totals AS t (
        session_key, source, model, first_revision, first_ordinal, input_tokens, output_tokens, cached_input_tokens,
        reasoning_tokens
    )
    SELECT
        session_key, source, model, min(revision), min(ordinal), sum(input_tokens)::bigint,
        sum(output_tokens)::bigint, sum(cached_input_tokens)::bigint, sum(reasoning_tokens)::bigint
    FROM usage_rows
    GROUP BY session_key, source, model
    ON CONFLICT (session_key, source, model) DO UPDATE
    SET input_tokens = t.input_tokens + excluded.input_tokens,
        output_tokens = t.output_tokens + excluded.output_tokens,
        cached_input_tokens = t.cached_input_tokens + excluded.cached_input_tokens,
        reasoning_tokens = t.reasoning_tokens + excluded.reasoning_tokens
),
-- Read from what was claimed, not from the session, whose queue may be long.
done AS MATERIALIZED (
    SELECT claimed.session_key, claimed.seq, claimed.source_key, claimed.batch_id, new.updated_at_ms
    FROM new
    JOIN claimed ON claimed.session_key = new.session_key
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
    WHERE new.release IS NOT NULL AND l.session_key = new.session_key AND l.owner_id = new.release ->> 0
        AND l.incarnation_id = new.release ->> 1
        AND l.token = new.release ->> 2 AND l.fencing = (new.release ->> 3)::bigint
),

-- fragment: commit_rest
-- Nodes, turns and the effects that end with them; the answer.
nodes AS (
    INSERT INTO :"schema".lash_nodes (
        session_key, segment, depth, seq, node_id, parent_node_id, user_message, body, packed, kind, begins_branch
    )
    SELECT new.session_key, n.*
    FROM new
    CROSS JOIN LATERAL unnest(
        (:segments::bigint[])[new.first_node:new.last_node], (:depths::bigint[])[new.first_node:new.last_node],
        (:seqs::bigint[])[new.first_node:new.last_node], (:node_ids::text[])[new.first_node:new.last_node],
        (:parent_ids::text[])[new.first_node:new.last_node],
        (:user_messages::boolean[])[new.first_node:new.last_node],
        (:bodies::text[])[new.first_node:new.last_node], (:packed_bodies::bytea[])[new.first_node:new.last_node],
        (:kinds::text[])[new.first_node:new.last_node], (:branches::boolean[])[new.first_node:new.last_node]
    ) AS n
),
stamped AS (
    INSERT INTO :"schema".lash_turns (session_key, turn_id, commit_hash, result, trace, committed_at_ms)
    SELECT new.session_key, new.turn_id, new.commit_hash, new.result, new.trace, new.updated_at_ms
    FROM new
    WHERE new.turn_id IS NOT NULL
),
-- The turn's effects end with it: first the effects, then their groups, as every statement locks them.
retired AS (
    DELETE FROM :"schema".lash_effects AS e USING new WHERE e.scope_id = new.scope_id RETURNING 1
),
retired_groups AS (
    DELETE FROM :"schema".lash_effect_groups AS g
    USING new, (SELECT count(*) AS number FROM retired) AS first
    WHERE g.scope_id = new.scope_id AND first.number >= 0
)
SELECT
    new.session_key,
    EXISTS (SELECT 1 FROM :"schema".lash_inherited AS i WHERE i.session_key = new.session_key OFFSET 0)
FROM new;

-- name: commit_turns
-- Writes commits of different sessions, at most max_together of them, if each replaces the session's only checkpoint,
-- without frames, by its own; changes nothing of the components but bytes that no other component shares; and brings no
-- new segment and no attachments. Writes each whole, or not at all when a fact of its plan no longer holds: the head's
-- revision and node count (which stand for all facts about the graph), no commit for the turn yet, a live lease under
-- the fence, claims that hold exactly the batches to consume, no new node id taken. Returns the session keys of the
-- written commits and whether each session inherits.
--
-- The blobs of a commit come in the order of the hashes that its record lists as replaced. The limit keeps the estimate
-- of the planner low, and OFFSET 0 makes it look rows up by index.
--
-- The records of the commits, as a JSON array, and the limit:
-- arguments: commits, max_together
-- Columns of all nodes; those of the commit at a position end at that position of node_ends:
-- arguments: node_ends, segments, depths, seqs, node_ids, parent_ids, user_messages, bodies, packed_bodies, kinds
-- arguments: branches
-- Columns of all blobs, divided in the same way:
-- arguments: blob_ends, blob_hashes, blob_codecs, blob_sizes, blob_contents
WITH
-- include: commit_asked
-- include: commit_guard
-- include: commit_held
-- include: commit_new
-- include: commit_new_end
-- Found by hash, which no other component has. Found by key, every version that a vacuum has yet to remove would be
-- read.
renewed AS MATERIALIZED (
    SELECT new.session_key, new.revision, k.*
    FROM new
    CROSS JOIN LATERAL (
        SELECT
            coalesce((:blob_ends::integer[])[new.place - 1], 0) + 1 AS first,
            (:blob_ends::integer[])[new.place] AS last
    ) AS own
    CROSS JOIN LATERAL unnest(
        array(SELECT json_array_elements_text(new.replaced)), (:blob_hashes::text[])[own.first:own.last],
        (:blob_codecs::text[])[own.first:own.last], (:blob_sizes::bigint[])[own.first:own.last],
        (:blob_contents::bytea[])[own.first:own.last]
    ) AS k (replaced, hash, codec, size, content)
    WHERE new.replaced IS NOT NULL
),
components AS (
    UPDATE :"schema".lash_components AS c
    SET first_revision = k.revision, hash = k.hash
    FROM renewed AS k
    WHERE c.session_key = k.session_key AND c.hash = k.replaced
),
blobs AS (
    UPDATE :"schema".lash_blobs AS b
    SET hash = k.hash, codec = k.codec, size = k.size, content = k.content
    FROM renewed AS k
    WHERE b.session_key = k.session_key AND b.hash = k.replaced
),
checkpoint AS (
    UPDATE :"schema".lash_checkpoints AS p
    SET revision = new.revision, checkpoint_ref = new.checkpoint_ref, turn_state = new.turn_state,
        plugin_snapshot_revision = new.plugin_snapshot_revision
    FROM new
    WHERE p.session_key = new.session_key AND p.revision = new.assumed_revision
),
-- include: commit_ledger
-- include: commit_rest

-- name: commit_apply
-- Writes commits of different sessions, of any kind, at most max_together of them. Writes each whole, or not at all
-- under the conditions of commit_turns, and also when bytes for a ref or an attachment are missing, or
-- a record has another version than expected. Returns the same.
--
-- The records of the commits, as a JSON array, and the limit:
-- arguments: commits, max_together
-- Columns of all nodes; those of the commit at a position end at that position of node_ends:
-- arguments: node_ends, segments, depths, seqs, node_ids, parent_ids, user_messages, bodies, packed_bodies, kinds
-- arguments: branches
-- Columns of all blobs, divided in the same way:
-- arguments: blob_ends, blob_hashes, blob_codecs, blob_sizes, blob_contents
-- Columns of the records of the only commit, NULL from form on for a deletion, and the most records:
-- arguments: record_own, record_collections, record_keys, record_versions, record_forms, record_hashes, record_codecs
-- arguments: record_sizes, record_contents, record_index_1, record_index_2, record_index_3, record_index_4
-- arguments: record_ttls_ms, record_expiries_ms, max_records
WITH
-- include: commit_asked
-- Locked, because a sweep may delete an uncommitted attachment without the head moving.
attachments AS (
    SELECT t.session_key, t.attachment_id
    FROM asked AS a
    CROSS JOIN LATERAL json_array_elements_text(a.attachments) AS wanted
    JOIN :"schema".lash_attachments AS t ON t.session_key = a.session_key AND t.attachment_id = wanted
    ORDER BY t.session_key, t.attachment_id
    FOR UPDATE OF t
),
-- include: commit_guard
        AND (a.refs IS NULL OR json_array_length(a.refs) = (
            SELECT count(*) FROM :"schema".lash_blobs AS b
            WHERE b.session_key = a.session_key
                AND b.hash = ANY (array(SELECT * FROM json_array_elements_text(a.refs)))
        ))
        AND (a.attachments IS NULL OR json_array_length(a.attachments) = (
            SELECT count(*) FROM attachments AS t WHERE t.session_key = a.session_key
        ))
-- include: commit_held
-- Records are locked after their sessions, as everywhere, and in the order of their keys. Only a commit that is sent
-- alone has some.
record_held AS MATERIALIZED (
    SELECT a.place, r.*
    FROM (
        SELECT CASE WHEN a.own THEN held.session_key ELSE 0 END AS scope_key, a.collection, a.key, a.place
        FROM held
        CROSS JOIN unnest(:record_own::boolean[], :record_collections::text[], :record_keys::text[])
        WITH ORDINALITY AS a (own, collection, key, place)
        ORDER BY 1, 2, 3
    ) AS a
    CROSS JOIN LATERAL (
        SELECT r.version, r.expires_at_ms, r.created_at_ms FROM :"schema".lash_records AS r
        WHERE r.scope_key = a.scope_key AND r.collection = a.collection AND r.key = a.key
        FOR UPDATE
    ) AS r
),
record_changes AS MATERIALIZED (
    SELECT
        a.*, held.session_key AS committed_key, CASE WHEN a.own THEN held.session_key END AS session_key,
        CASE WHEN a.own THEN held.session_key ELSE 0 END AS scope_key, h.place IS NOT NULL AS is_stored, v.actual,
        CASE WHEN v.actual = 0 THEN held.now_ms ELSE h.created_at_ms END AS created_at_ms, held.now_ms,
        CASE
            WHEN a.ttl_ms IS NULL THEN a.expires_at_ms
            ELSE least(held.now_ms, 9223372036854775807 - a.ttl_ms) + a.ttl_ms
        END AS expiry_ms
    FROM held
    CROSS JOIN unnest(
        :record_own::boolean[], :record_collections::text[], :record_keys::text[], :record_versions::bigint[],
        :record_forms::text[], :record_hashes::text[], :record_codecs::text[], :record_sizes::bigint[],
        :record_contents::bytea[], :record_index_1::text[], :record_index_2::text[], :record_index_3::text[],
        :record_index_4::text[], :record_ttls_ms::bigint[], :record_expiries_ms::bigint[]
    ) WITH ORDINALITY AS a (
        own, collection, key, expected, form, hash, codec, size, content, index_1, index_2, index_3, index_4, ttl_ms,
        expires_at_ms, place
    )
    LEFT JOIN record_held AS h ON h.place = a.place
    CROSS JOIN LATERAL (
        SELECT CASE WHEN h.place IS NULL OR h.expires_at_ms <= held.now_ms THEN 0 ELSE h.version END AS actual
    ) AS v
    LIMIT :max_records::bigint
),
-- include: commit_new
        AND NOT EXISTS (SELECT 1 FROM record_changes AS c WHERE c.expected <> c.actual)
-- include: commit_new_end
records_deleted AS (
    DELETE FROM :"schema".lash_records AS r
    USING new, record_changes AS c
    WHERE c.committed_key = new.session_key AND c.form IS NULL AND r.scope_key = c.scope_key
        AND r.collection = c.collection AND r.key = c.key
),
records_updated AS (
    UPDATE :"schema".lash_records AS r
    SET version = c.actual + 1, form = c.form, hash = c.hash, codec = c.codec, size = c.size, index_1 = c.index_1,
        index_2 = c.index_2, index_3 = c.index_3, index_4 = c.index_4, expires_at_ms = c.expiry_ms,
        created_at_ms = c.created_at_ms, updated_at_ms = c.now_ms, content = c.content
    FROM new, record_changes AS c
    WHERE c.committed_key = new.session_key AND c.form IS NOT NULL AND c.is_stored AND r.scope_key = c.scope_key
        AND r.collection = c.collection AND r.key = c.key
),
records_inserted AS (
    INSERT INTO :"schema".lash_records (
        scope_key, collection, key, session_key, version, form, hash, codec, size, index_1, index_2, index_3, index_4,
        expires_at_ms, created_at_ms, updated_at_ms, content
    )
    SELECT
        c.scope_key, c.collection, c.key, c.session_key, 1, c.form, c.hash, c.codec, c.size, c.index_1, c.index_2,
        c.index_3, c.index_4, c.expiry_ms, c.now_ms, c.now_ms, c.content
    FROM new
    JOIN record_changes AS c ON c.committed_key = new.session_key
    WHERE c.form IS NOT NULL AND NOT c.is_stored
    ORDER BY c.scope_key, c.collection, c.key
),
segments AS (
    INSERT INTO :"schema".lash_segments (session_key, segment, parent_segment, parent_depth)
    SELECT new.session_key, (g ->> 0)::bigint, (g ->> 1)::bigint, (g ->> 2)::bigint
    FROM new
    CROSS JOIN LATERAL json_array_elements(new.segments) AS g
),
blobs AS (
    INSERT INTO :"schema".lash_blobs (session_key, hash, codec, size, content)
    SELECT new.session_key, b.*
    FROM new
    CROSS JOIN LATERAL (
        SELECT
            coalesce((:blob_ends::integer[])[new.place - 1], 0) + 1 AS first,
            (:blob_ends::integer[])[new.place] AS last
    ) AS own
    CROSS JOIN LATERAL unnest(
        (:blob_hashes::text[])[own.first:own.last], (:blob_codecs::text[])[own.first:own.last],
        (:blob_sizes::bigint[])[own.first:own.last], (:blob_contents::bytea[])[own.first:own.last]
    ) AS b
    ON CONFLICT (session_key, hash) DO NOTHING
),
components AS (
    SELECT new.session_key, new.revision, c.key, c.value AS hash
    FROM new
    CROSS JOIN LATERAL json_each_text(new.components) AS c
),
opened_components AS (
    INSERT INTO :"schema".lash_components (session_key, key, first_revision, hash)
    SELECT k.session_key, k.key, k.revision, k.hash
    FROM components AS k
    WHERE NOT EXISTS (
        SELECT 1 FROM :"schema".lash_components AS c
        WHERE c.session_key = k.session_key AND c.key = k.key AND c.hash = k.hash AND c.last_revision IS NULL
        OFFSET 0
    )
),
checkpoint AS (
    INSERT INTO :"schema".lash_checkpoints (
        session_key, revision, checkpoint_ref, turn_state, plugin_snapshot_revision
    )
    SELECT new.session_key, new.revision, new.checkpoint_ref, new.turn_state, new.plugin_snapshot_revision
    FROM new
),
dropped_checkpoints AS (
    DELETE FROM :"schema".lash_checkpoints AS p
    USING new
    WHERE p.session_key = new.session_key AND p.revision < new.retention_floor
),
expired_components AS (
    DELETE FROM :"schema".lash_components AS c
    USING new
    WHERE c.session_key = new.session_key AND c.last_revision < new.retention_floor
    RETURNING c.session_key, c.key, c.first_revision, c.hash
),
-- A component that changed ends with the revision before this one; below the retention floor it is deleted at once.
replaced_components AS (
    DELETE FROM :"schema".lash_components AS c
    USING new
    WHERE c.session_key = new.session_key AND c.last_revision IS NULL AND new.revision - 1 < new.retention_floor
        AND NOT EXISTS (
            SELECT 1 FROM components AS k
            WHERE k.session_key = c.session_key AND k.key = c.key AND k.hash = c.hash
        )
    RETURNING c.session_key, c.key, c.first_revision, c.hash
),
dropped_components AS (SELECT * FROM expired_components UNION ALL SELECT * FROM replaced_components),
closed_components AS (
    UPDATE :"schema".lash_components AS c
    SET last_revision = new.revision - 1
    FROM new
    WHERE c.session_key = new.session_key AND c.last_revision IS NULL AND new.revision - 1 >= new.retention_floor
        AND NOT EXISTS (
            SELECT 1 FROM components AS k
            WHERE k.session_key = c.session_key AND k.key = c.key AND k.hash = c.hash
        )
),
dropped_frames AS (
    DELETE FROM :"schema".lash_frames AS f
    USING new
    WHERE f.session_key = new.session_key
        AND NOT EXISTS (SELECT 1 FROM json_array_elements(new.frames) AS k WHERE k ->> 0 = f.frame_id)
),
frames AS (
    INSERT INTO :"schema".lash_frames AS f (session_key, frame_id, position, body)
    SELECT new.session_key, k ->> 0, (k ->> 1)::bigint, k ->> 2
    FROM new
    CROSS JOIN LATERAL json_array_elements(new.frames) AS k
    ON CONFLICT (session_key, frame_id) DO UPDATE SET position = excluded.position, body = excluded.body
    WHERE f.position <> excluded.position OR f.body <> excluded.body
),
-- The bytes that no component names any more.
dropped_blobs AS (
    DELETE FROM :"schema".lash_blobs AS b
    USING dropped_components AS gone
    WHERE b.session_key = gone.session_key AND b.hash = gone.hash
        AND NOT EXISTS (
            SELECT 1 FROM components AS k WHERE k.session_key = b.session_key AND k.hash = b.hash
        )
        AND NOT EXISTS (
            SELECT 1 FROM :"schema".lash_components AS c
            WHERE c.session_key = b.session_key AND c.hash = b.hash
                AND NOT EXISTS (
                    SELECT 1 FROM dropped_components AS d
                    WHERE d.session_key = c.session_key AND d.key = c.key AND d.first_revision = c.first_revision
                )
            OFFSET 0
        )
),
-- include: commit_ledger
stamped_attachments AS (
    UPDATE :"schema".lash_attachments AS t
    SET committed_at_ms = coalesce(t.committed_at_ms, new.updated_at_ms)
    FROM new
    JOIN attachments ON attachments.session_key = new.session_key
    WHERE t.session_key = attachments.session_key AND t.attachment_id = attachments.attachment_id
),
-- include: commit_rest
