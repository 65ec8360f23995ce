-- name: notify_send
-- Tells all who listen that something may have changed, and who says so.
SELECT pg_notify($1::text, $2::text);
