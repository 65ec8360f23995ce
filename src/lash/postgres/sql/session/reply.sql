-- name: reply_queued
-- Which of some batches, given as the sessions $1 and the batches $2, are still queued.
SELECT b.batch_id
FROM unnest($1::text[], $2::text[]) AS asked (session_id, batch_id)
JOIN :"schema".lash_sessions AS s ON s.session_id = asked.session_id
JOIN :"schema".lash_batches AS b ON b.session_key = s.session_key AND b.batch_id = asked.batch_id;
