"""The scenarios, one file for each group."""

from __future__ import annotations

import importlib

_FILES = (
    "sqlite_driver",
    "postgres_driver",
    "postgres_rows",
    "chats",
    "agent_turns",
    "lives",
    "engines",
    "adapters",
    "ends",
    "flatness",
    "programs",
    "appends",
    "tails",
    "lists",
    "console",
    "console_streams",
    "forks",
    "latency",
    "fleet",
    "askers",
    "footprint",
    "shared",
    "hardship",
)


def load() -> None:
    """Import them all, in the order in which they are run."""
    for name in _FILES:
        importlib.import_module(f"benchmarks.scenarios.{name}")
