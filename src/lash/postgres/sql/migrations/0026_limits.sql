-- Named limits: how often steps may start, over all workers.

-- One row for each name and key in use; the empty key is the limit without one. Reservations follow each other by
-- interval_us; the next one begins at free_at_us, up to a burst earlier.
-- Owner: the storage; removed by pruning once free_at_us has passed.
CREATE TABLE :"schema".lash_limits (
    name        text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    interval_us bigint NOT NULL CHECK (interval_us > 0),
    burst       bigint NOT NULL CHECK (burst > 0),
    free_at_us  bigint NOT NULL,
    PRIMARY KEY (name, key)
);
