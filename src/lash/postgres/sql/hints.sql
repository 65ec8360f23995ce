-- name: notify_send
-- Notifies all listeners that something may have changed, and names the sender. A hint need not survive a crash, so the
-- statement does not wait for the disk.
SELECT pg_notify($1::text, $2::text) FROM set_config('synchronous_commit', 'off', true);
