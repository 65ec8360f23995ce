-- Attempts that failed and attempts that crashed are counted apart, because each has a limit of its own.

-- Of the claims of a batch, how many were given back as failed.
ALTER TABLE :"schema".lash_batches
ADD COLUMN failure_count bigint NOT NULL DEFAULT 0 CHECK (failure_count >= 0);
ALTER TABLE :"schema".lash_dead_letters
ADD COLUMN failure_count bigint NOT NULL DEFAULT 0 CHECK (failure_count >= 0);

-- How many holders let the lease of the process go without releasing it, since it was last parked.
ALTER TABLE :"schema".lash_process_leases
ADD COLUMN crash_count bigint NOT NULL DEFAULT 0 CHECK (crash_count >= 0);
