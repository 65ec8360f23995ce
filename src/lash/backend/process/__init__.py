"""Processes, their leases, events and grants on either database."""
