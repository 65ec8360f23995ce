-- Long entries of conversations are kept compressed.

-- The compressed body of a long node; its column body is then empty.
ALTER TABLE lash_nodes ADD COLUMN packed BLOB CHECK (packed IS NULL OR body = '');
