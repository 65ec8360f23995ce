-- name: session_turns
-- What is kept of the committed turns $2 of a session; no row if the session does not exist.
SELECT
    s.session_key,
    array(
        SELECT row(t.turn_id, t.commit_hash, t.result, t.trace, t.committed_at_ms)
        FROM :"schema".lash_turns AS t
        WHERE t.session_key = s.session_key AND t.turn_id = ANY ($2::text[])
    )
FROM :"schema".lash_sessions AS s
WHERE s.session_id = $1::text;
