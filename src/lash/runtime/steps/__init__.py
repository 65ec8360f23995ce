"""Recorded steps: the journal, values and failures."""
