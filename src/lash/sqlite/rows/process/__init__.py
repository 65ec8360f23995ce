"""Rows of processes, their events, leases and grants."""
