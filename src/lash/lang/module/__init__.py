"""Modules: linked programs under the hash of their meaning."""
