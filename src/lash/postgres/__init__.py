"""The PostgreSQL backend: engine, rows and SQL."""
