"""Named queries, migrations and the catalogue check; it knows no table."""
