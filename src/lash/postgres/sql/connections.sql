-- name: connection_use
-- How many connections ordinary users have on this server, and how many of them are in use.
SELECT
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
    - coalesce(current_setting('reserved_connections', true)::bigint, 0),
    (SELECT count(*) FROM pg_stat_activity AS a WHERE a.backend_type = 'client backend');
