"""Numbered migrations of SQLite; they only lead forward."""
