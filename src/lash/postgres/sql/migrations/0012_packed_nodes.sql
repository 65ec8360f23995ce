-- Long entries of conversations are kept compressed.

-- The compressed body of a long node; its column body is then empty. The server need not try to compress it again.
ALTER TABLE :"schema".lash_nodes ADD COLUMN packed bytea CHECK (packed IS NULL OR body = '');
ALTER TABLE :"schema".lash_nodes ALTER COLUMN packed SET STORAGE EXTERNAL;
