"""Agents, durable processes and workers on top of a storage."""
