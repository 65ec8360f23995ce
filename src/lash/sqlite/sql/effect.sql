-- name: effect_row
-- One effect.
SELECT replay_key, envelope, envelope_hash, status, outcome, error, once, owner_id, incarnation_id, process, token,
    fencing, expires_at_ms, due_at_ms, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker,
    traceparent
FROM lash_effects
WHERE scope_id = :scope_id AND replay_key = :replay_key;

-- name: effect_rows
-- Those of some effects that exist, each with its place in a JSON array of scope ids and keys.
SELECT e.replay_key, e.envelope, e.envelope_hash, e.status, e.outcome, e.error, e.once, e.owner_id, e.incarnation_id,
    e.process, e.token, e.fencing, e.expires_at_ms, e.due_at_ms, e.settled_rank, e.created_at_ms, e.updated_at_ms,
    e.began_at_ms, e.attempt, e.tries, e.worker, e.traceparent, wanted.key
FROM json_each(:names) AS wanted
CROSS JOIN lash_effects AS e ON e.scope_id = wanted.value ->> 0 AND e.replay_key = wanted.value ->> 1;

-- name: effect_page
-- Effects of a scope by their keys.
SELECT replay_key, envelope, envelope_hash, status, outcome, error, once, owner_id, incarnation_id, process, token,
    fencing, expires_at_ms, due_at_ms, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker,
    traceparent
FROM lash_effects
WHERE scope_id = :scope_id AND replay_key > :after
ORDER BY replay_key
LIMIT :limit;

-- name: effect_recent
-- The last effects of a scope to change, the newest first; an earlier key first if the times are equal.
SELECT replay_key, envelope, envelope_hash, status, outcome, error, once, owner_id, incarnation_id, process, token,
    fencing, expires_at_ms, due_at_ms, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker,
    traceparent
FROM lash_effects
WHERE scope_id = :scope_id AND replay_key IN (
    SELECT e.replay_key
    FROM lash_effects AS e
    WHERE e.scope_id = :scope_id
    ORDER BY e.updated_at_ms DESC, e.replay_key
    LIMIT :limit
)
ORDER BY updated_at_ms DESC, replay_key;

-- name: effect_claim
-- Starts an effect under a first claim.
INSERT INTO lash_effects (
    scope_id, replay_key, session_key, process_key, envelope, envelope_hash, status, once, owner_id, incarnation_id,
    process, token, fencing, expires_at_ms, due_at_ms, group_key, created_at_ms, updated_at_ms, began_at_ms, attempt,
    traceparent
)
VALUES (
    :scope_id, :replay_key, :session_key, :process_key, :envelope, :envelope_hash, 'in_progress', :once, :owner_id,
    :incarnation_id, :process, :token, 1, :expires_at_ms, :due_at_ms, :group_key, :now_ms, :now_ms, :now_ms, :attempt,
    :traceparent
);

-- name: effect_take
-- Gives an effect to a new runner under the next fencing number if no other runner has changed it; its due time stays.
UPDATE lash_effects
SET once = :once, owner_id = :owner_id, incarnation_id = :incarnation_id, process = :process, token = :token,
    began_at_ms = :now_ms, attempt = :attempt, traceparent = :traceparent,
    fencing = fencing + 1, expires_at_ms = :expires_at_ms, updated_at_ms = :now_ms
WHERE scope_id = :scope_id AND replay_key = :replay_key AND envelope_hash = :envelope_hash
    AND status = 'in_progress' AND fencing = :seen_fencing AND token IS :seen_token
    AND (expires_at_ms IS NULL OR expires_at_ms <= :now_ms)
RETURNING fencing, expires_at_ms, due_at_ms;

-- name: effect_renew
-- Moves the expiry of a claim that no other runner took, expired or not, never to an earlier moment.
UPDATE lash_effects
SET expires_at_ms = MAX(expires_at_ms, :expires_at_ms), updated_at_ms = :now_ms
WHERE scope_id = :scope_id AND replay_key = :replay_key AND envelope_hash = :envelope_hash AND token = :token
    AND fencing = :fencing AND status = 'in_progress'
RETURNING fencing, expires_at_ms, due_at_ms;

-- name: effect_finish
-- Records the outcome of an effect under a claim that no other runner took, expired or not, and its rank in its group.
UPDATE lash_effects
SET status = :status, outcome = :outcome, error = :error, expires_at_ms = NULL, updated_at_ms = :now_ms,
    settled_rank = (
        SELECT g.settled + 1 FROM lash_effect_groups AS g
        WHERE g.scope_id = lash_effects.scope_id AND g.group_key = lash_effects.group_key
    )
WHERE scope_id = :scope_id AND replay_key = :replay_key AND envelope_hash = :envelope_hash AND token = :token
    AND fencing = :fencing AND status = 'in_progress'
RETURNING replay_key, envelope, envelope_hash, status, outcome, error, once, owner_id, incarnation_id, process, token,
    fencing, expires_at_ms, due_at_ms, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker,
    traceparent;

-- name: effect_finish_group
-- Counts an effect that has just finished in its group.
UPDATE lash_effect_groups
SET settled = settled + 1
WHERE scope_id = :scope_id AND group_key = (
    SELECT e.group_key FROM lash_effects AS e WHERE e.scope_id = :scope_id AND e.replay_key = :replay_key
);

-- name: effect_release
-- Releases a claim, expired or not, unless another runner has taken the effect over; the fencing number stays.
UPDATE lash_effects
SET owner_id = NULL, incarnation_id = NULL, process = NULL, token = NULL, expires_at_ms = NULL, updated_at_ms = :now_ms
WHERE scope_id = :scope_id AND replay_key = :replay_key AND envelope_hash = :envelope_hash AND token = :token
    AND fencing = :fencing AND status = 'in_progress';

-- name: effect_record
-- Records an effect under the live lease of its session, unless its key has a record.
INSERT INTO lash_effects (
    scope_id, replay_key, session_key, process_key, envelope, envelope_hash, status, outcome, error, once, fencing,
    due_at_ms, group_key, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker, traceparent
)
SELECT
    :scope_id, :replay_key, l.session_key, NULL, :envelope, :envelope_hash, :status, :outcome, :error, 0, 0,
    :due_at_ms, :group_key, :settled_rank, :now_ms, :now_ms, :began_at_ms, :attempt, :tries, :owner_id, :traceparent
FROM lash_sessions AS s
JOIN lash_session_leases AS l ON l.session_key = s.session_key
WHERE s.session_id = :owned_by AND l.owner_id = :owner_id AND l.incarnation_id = :incarnation_id
    AND l.token = :token AND l.fencing = :fencing AND l.expires_at_ms > :now_ms
ON CONFLICT (scope_id, replay_key) DO NOTHING;

-- name: effect_record_in_process
-- Records an effect under the live lease of its process, unless its key has a record. One statement for sessions and
-- processes would copy the inserted values, and take twice as long.
INSERT INTO lash_effects (
    scope_id, replay_key, session_key, process_key, envelope, envelope_hash, status, outcome, error, once, fencing,
    due_at_ms, group_key, settled_rank, created_at_ms, updated_at_ms, began_at_ms, attempt, tries, worker, traceparent
)
SELECT
    :scope_id, :replay_key, NULL, l.process_key, :envelope, :envelope_hash, :status, :outcome, :error, 0, 0,
    :due_at_ms, :group_key, :settled_rank, :now_ms, :now_ms, :began_at_ms, :attempt, :tries, :owner_id, :traceparent
FROM lash_processes AS p
JOIN lash_process_leases AS l ON l.process_key = p.process_key
WHERE p.process_id = :owned_by AND l.owner_id = :owner_id AND l.incarnation_id = :incarnation_id
    AND l.token = :token AND l.fencing = :fencing AND l.expires_at_ms > :now_ms
ON CONFLICT (scope_id, replay_key) DO NOTHING;

-- name: effect_retire
-- Deletes the effects of a scope.
DELETE FROM lash_effects WHERE scope_id = :scope_id;

-- name: effect_retire_groups
-- Deletes the groups of a scope.
DELETE FROM lash_effect_groups WHERE scope_id = :scope_id;

-- name: effect_open_group
-- Opens a group, unless its key is taken.
INSERT INTO lash_effect_groups (scope_id, group_key, session_key, process_key, size, created_at_ms)
VALUES (:scope_id, :group_key, :session_key, :process_key, :size, :now_ms)
ON CONFLICT (scope_id, group_key) DO NOTHING;

-- name: effect_join_group
-- Counts an effect that starts, or is recorded at once, in its group.
UPDATE lash_effect_groups
SET members = members + 1, settled = settled + :settled
WHERE scope_id = :scope_id AND group_key = :group_key;

-- name: effect_group
-- One group.
SELECT size, members, settled FROM lash_effect_groups WHERE scope_id = :scope_id AND group_key = :group_key;

-- name: effect_finished
-- The finished effects of a group, in the order in which they finished.
SELECT replay_key FROM lash_effects
WHERE scope_id = :scope_id AND group_key = :group_key AND settled_rank IS NOT NULL
ORDER BY settled_rank;
