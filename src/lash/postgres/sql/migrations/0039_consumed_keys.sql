-- On PostgreSQL the statement of a commit removes the batches that it consumes. The number is that of SQLite's migration,
-- so that storages of the two can be compared when one is moved into the other.
SELECT 1;
