-- Which numbering the positions of the change feed belong to. A cursor carries the epoch; one of another epoch gets a
-- gap. A move into this storage and a restored backup begin a new epoch. There is one row.
-- Owner: the storage; never removed.
CREATE TABLE lash_process_change_epoch (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT NOT NULL
) STRICT;
INSERT INTO lash_process_change_epoch (one, epoch) VALUES (1, lower(hex(randomblob(16))));
