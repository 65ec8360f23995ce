"""The SQLite engine: connections, threads, locks and transactions. It knows no table of lash; start at `database`."""
