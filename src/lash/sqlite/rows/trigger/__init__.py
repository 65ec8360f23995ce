"""Rows of triggers, occurrences and schedules."""
