"""Protocols of triggers, occurrences and schedules."""
