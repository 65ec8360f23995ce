-- name: act_insert
-- Records an act that is about to be done; a retry after a lost connection finds it.
INSERT INTO :"schema".lash_acts AS a (act_id, operator, verb, target, session_id, process_id, at_ms)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, :"schema".lash_now_ms())
ON CONFLICT (act_id) DO UPDATE SET verb = excluded.verb
RETURNING a.position, a.act_id, a.operator, a.verb, a.target, a.session_id, a.process_id, a.at_ms, a.outcome, a.error;

-- name: act_settle
-- Records how an act ended, unless that is known.
UPDATE :"schema".lash_acts SET outcome = $2::text, error = $3::text
WHERE act_id = $1::text AND outcome IS NULL
RETURNING true;

-- name: act_page
-- Acts before a position ($1), the last first.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM :"schema".lash_acts
WHERE position < $1::bigint
ORDER BY position DESC
LIMIT $2::bigint;

-- name: act_page_by_operator
-- Acts of an operator ($1) before a position ($2), the last first.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM :"schema".lash_acts
WHERE operator = $1::text AND position < $2::bigint
ORDER BY position DESC
LIMIT $3::bigint;

-- name: act_page_of_session
-- Acts about a session ($1) before a position ($3), the last first; of an operator ($2) if one is named.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM :"schema".lash_acts
WHERE session_id = $1::text AND ($2::text IS NULL OR operator = $2::text) AND position < $3::bigint
ORDER BY position DESC
LIMIT $4::bigint;

-- name: act_page_of_process
-- Acts about a process ($1) before a position ($3), the last first; of an operator ($2) if one is named.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM :"schema".lash_acts
WHERE process_id = $1::text AND ($2::text IS NULL OR operator = $2::text) AND position < $3::bigint
ORDER BY position DESC
LIMIT $4::bigint;

-- name: act_prune
-- Removes acts from before a moment, the oldest first, and returns how many.
WITH chosen AS (
    SELECT a.position FROM :"schema".lash_acts AS a
    WHERE a.at_ms < $1::bigint
    ORDER BY a.at_ms
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM :"schema".lash_acts AS a USING chosen WHERE a.position = chosen.position RETURNING 1)
SELECT count(*) FROM gone;
