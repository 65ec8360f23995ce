"""Sealers: what wraps values before they are stored."""
