-- name: act_insert
-- Records an act that is about to be done.
INSERT INTO lash_acts (act_id, operator, verb, target, session_id, process_id, at_ms)
VALUES (:act_id, :operator, :verb, :target, :session_id, :process_id, :now_ms)
RETURNING position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error;

-- name: act_settle
-- Records how an act ended, unless that is known.
UPDATE lash_acts SET outcome = :outcome, error = :error WHERE act_id = :act_id AND outcome IS NULL;

-- name: act_page
-- Acts before a position, the last first.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM lash_acts
WHERE position < :before
ORDER BY position DESC
LIMIT :limit;

-- name: act_page_by_operator
-- Acts of an operator before a position, the last first.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM lash_acts
WHERE operator = :operator AND position < :before
ORDER BY position DESC
LIMIT :limit;

-- name: act_page_of_session
-- Acts about a session before a position, the last first; of an operator if one is named.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM lash_acts
WHERE session_id = :session_id AND position < :before AND (:operator IS NULL OR operator = :operator)
ORDER BY position DESC
LIMIT :limit;

-- name: act_page_of_process
-- Acts about a process before a position, the last first; of an operator if one is named.
SELECT position, act_id, operator, verb, target, session_id, process_id, at_ms, outcome, error
FROM lash_acts
WHERE process_id = :process_id AND position < :before AND (:operator IS NULL OR operator = :operator)
ORDER BY position DESC
LIMIT :limit;

-- name: act_prune
-- Removes acts from before a moment, the oldest first.
DELETE FROM lash_acts
WHERE position IN (SELECT position FROM lash_acts WHERE at_ms < :before_ms ORDER BY at_ms LIMIT :limit);
