"""Observation of a session: the stream, its cursor and live activity."""
