-- name: frame_all
-- The frames of a session's head, in order.
SELECT frame_id, position, body FROM lash_frames WHERE session_key = :session_key ORDER BY position;
