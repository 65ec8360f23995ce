"""Rows of queued work, claims and dead letters."""
