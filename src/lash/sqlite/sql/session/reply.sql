-- name: reply_queued
-- Which of some batches, given as pairs of a session and a batch, are still queued.
SELECT b.batch_id
FROM json_each(:batches) AS asked
CROSS JOIN lash_sessions AS s ON s.session_id = asked.value ->> 0
CROSS JOIN lash_batches AS b ON b.session_key = s.session_key AND b.batch_id = asked.value ->> 1;
