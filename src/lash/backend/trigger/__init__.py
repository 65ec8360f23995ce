"""Triggers, occurrences and schedules on either database."""
