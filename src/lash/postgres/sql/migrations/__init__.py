"""Numbered migrations of PostgreSQL; they only lead forward."""
