"""Protocols of processes, their leases, events and grants."""
