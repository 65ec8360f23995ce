"""The PostgreSQL engine: pool, statements, retries and batches. It knows no table of lash; start at `database`."""
