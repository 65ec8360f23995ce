"""Programs of rivals, each in an environment of its own."""

from __future__ import annotations


class RivalMissing(Exception):
    """The environment of a rival is not there; the text says how to get it."""
