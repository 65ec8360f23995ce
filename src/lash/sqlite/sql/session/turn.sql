-- name: session_turns
-- What is kept of committed turns of a session.
SELECT turn_id, commit_hash, result, trace, committed_at_ms
FROM lash_turns
WHERE session_key = :session_key AND turn_id IN (SELECT value FROM json_each(:turn_ids));
