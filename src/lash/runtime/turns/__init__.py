"""Turns of a session: run, draft, early input, history and handles."""
