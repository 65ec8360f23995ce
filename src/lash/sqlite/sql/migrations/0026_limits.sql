-- Named limits: how often steps may start, over all workers.

-- One row for each name and key in use; the empty key is the limit without one. Reservations follow each other by
-- interval_us; the next one begins at free_at_us, up to a burst earlier.
-- Owner: the storage; removed by pruning once free_at_us has passed.
CREATE TABLE lash_limits (
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    interval_us INTEGER NOT NULL CHECK (interval_us > 0),
    burst       INTEGER NOT NULL CHECK (burst > 0),
    free_at_us  INTEGER NOT NULL,
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;
