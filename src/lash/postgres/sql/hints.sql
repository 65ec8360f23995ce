-- name: notify_send
-- Tells all who listen that something may have changed, and who says so. It need not survive a crash, so it does not
-- wait for the disk.
SELECT pg_notify($1::text, $2::text) FROM set_config('synchronous_commit', 'off', true);
