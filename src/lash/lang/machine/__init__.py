"""The evaluator: a machine whose whole state is plain data."""
