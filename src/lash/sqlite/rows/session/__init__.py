"""Rows of sessions, commits and forks."""
