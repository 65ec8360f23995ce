-- Which numbering the positions of the change feed belong to, and the database in which it was begun.

-- The identifier of the server's data directory, the same on its physical standbys; NULL where the role may not read it.
CREATE FUNCTION :"schema".lash_system_id() RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() AS c);
EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
    RETURN NULL;
END
$$;

-- The transaction ids of the feed mean nothing on another server, or in a table that was restored or copied. place names
-- the database and this table by their numbers, which a restored table does not keep. A cursor carries the epoch; one of
-- another epoch gets a gap. Opening begins a new epoch where the storage is not where it was. There is one row.
-- Owner: the storage; never removed.
CREATE TABLE :"schema".lash_process_change_epoch (
    one       boolean PRIMARY KEY CHECK (one),
    epoch     text NOT NULL,
    system_id text,
    place     text NOT NULL
);
INSERT INTO :"schema".lash_process_change_epoch (one, epoch, place)
VALUES (true, replace(gen_random_uuid()::text, '-', ''), '');
UPDATE :"schema".lash_process_change_epoch
SET system_id = :"schema".lash_system_id(),
    place = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())::text || '/' || tableoid::text;
