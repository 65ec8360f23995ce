"""Attachments on either database, and the sweep of unused ones."""
