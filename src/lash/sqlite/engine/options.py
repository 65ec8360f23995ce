"""The settings of a SQLite database, and the small types that its users share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeAlias

from lash.errors import ConfigError

SQLiteValue: TypeAlias = None | int | float | str | bytes
"""What a column or a parameter can hold."""

StatementHook: TypeAlias = Callable[[str], None]
"""Called before each statement with the name of the query, or with ``begin``, ``savepoint``, ``rollback``,
``release``, ``commit`` or ``checkpoint``.

It runs on the thread that runs the statement. What it raises counts as the failure of that statement.
"""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SQLiteOptions:
    """How a database is written, read and shared.

    ``lend_gil`` and ``take_turns`` are on for everybody. They can be turned off so that tests and benchmarks
    can show what each of them is for; there is no other reason to do it.
    """

    synchronous: Literal["full", "normal"] = "full"
    """``full``: an acknowledged write survives power loss. ``normal``: the last writes before a power loss
    may be missing, though never half of one; a killed process loses nothing."""
    busy_timeout_ms: int = 15_000
    """How long a call waits for another process before it fails as unavailable."""
    group_limit: int = 64
    """How many waiting bodies share one transaction at most."""
    checkpoint_pages: int = 1000
    """The write-ahead log is copied into the database when it has grown by this many pages."""
    lend_gil: bool = True
    """A busy event loop makes room for the threads that work for it."""
    loop_commit_ms: float = 1.0
    """The event loop writes brief transactions by itself while commits take no longer than this. 0: never."""
    take_turns: bool = True
    """Processes that write to one file queue up for it, by means of two lock files."""
    reader_threads: int = 4
    """How many long reads run at the same time."""

    def __post_init__(self) -> None:
        if self.synchronous not in {"full", "normal"}:
            raise ConfigError(f"synchronous must be 'full' or 'normal', not {self.synchronous!r}")
        if self.busy_timeout_ms < 0:
            raise ConfigError(f"busy_timeout_ms must not be negative; it is {self.busy_timeout_ms}")
        if self.loop_commit_ms < 0:
            raise ConfigError(f"loop_commit_ms must not be negative; it is {self.loop_commit_ms}")
        for name in ("group_limit", "checkpoint_pages", "reader_threads"):
            number: int = getattr(self, name)
            if number < 1:
                raise ConfigError(f"{name} must be at least 1; it is {number}")
