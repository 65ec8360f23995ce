"""Named statements of PostgreSQL, one file for each noun."""
