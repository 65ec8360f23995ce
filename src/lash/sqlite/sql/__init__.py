"""Named queries of SQLite, one file for each noun."""
