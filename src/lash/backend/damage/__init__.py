"""The search for damage on either database: rows that cannot be read, and rows that contradict each other."""
