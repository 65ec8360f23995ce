"""Durable processes: context, run, handles and branches."""
