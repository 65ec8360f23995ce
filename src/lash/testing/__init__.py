"""For tests of applications: a clock, a PostgreSQL server and a harness."""
