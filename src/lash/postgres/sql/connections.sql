-- name: connection_use
-- How many connections ordinary users have on this server, and how many of them are in use.
-- A role without pg_read_all_stats sees the database and the user of other roles' backends, and not their type.
SELECT
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
    - coalesce(current_setting('reserved_connections', true)::bigint, 0),
    (
        SELECT count(*) FROM pg_stat_activity AS a
        WHERE coalesce(a.backend_type, 'client backend') = 'client backend'
            AND a.datid IS NOT NULL
            AND a.usesysid IS NOT NULL
    );
