-- What a commit need not pay for: on SQLite there is nothing to change. The number is that of PostgreSQL's migration, so
-- that storages of the two can be compared when one is moved into the other.
SELECT 1;
