-- Attempts that failed and attempts that crashed are counted apart, because each has a limit of its own.

-- Of the claims of a batch, how many were given back as failed.
ALTER TABLE lash_batches ADD COLUMN failure_count INTEGER NOT NULL DEFAULT 0 CHECK (failure_count >= 0);
ALTER TABLE lash_dead_letters ADD COLUMN failure_count INTEGER NOT NULL DEFAULT 0 CHECK (failure_count >= 0);

-- How many holders let the lease of the process go without releasing it, since it was last parked.
ALTER TABLE lash_process_leases ADD COLUMN crash_count INTEGER NOT NULL DEFAULT 0 CHECK (crash_count >= 0);
