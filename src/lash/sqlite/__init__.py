"""The SQLite backend: engine, rows and SQL."""
