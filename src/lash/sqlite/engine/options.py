"""The options of a SQLite database, and small types that its modules share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeAlias

from lash.errors import ConfigError

SQLiteValue: TypeAlias = None | int | float | str | bytes
"""A value of a column or a parameter."""

StatementHook: TypeAlias = Callable[[str], None]
"""Called before each statement with the name of the query, or with ``begin``, ``savepoint``, ``rollback``,
``release``, ``commit`` or ``checkpoint``.

It runs on the thread that runs the statement. An exception that it raises counts as a failure of that statement.
"""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SQLiteOptions:
    """How a database is written, read and shared.

    ``yield_gil`` and ``fair_lock`` should stay on. They can be turned off so that tests and benchmarks can show what
    each of them is for.
    """

    synchronous: Literal["full", "normal"] = "full"
    """``full``: an acknowledged write survives power loss. ``normal``: the last writes before a power loss
    may be missing, though never half of one; a killed process loses nothing."""
    busy_timeout_ms: int = 15_000
    """How long a call waits for another process before it fails as unavailable."""
    group_limit: int = 64
    """How many waiting writes share one transaction at most."""
    checkpoint_pages: int = 4000
    """The write-ahead log is copied into the database when it has grown by this many pages."""
    yield_gil: bool = True
    """A busy event loop yields the interpreter to the threads that work for it."""
    loop_commit_ms: float = 1.0
    """The event loop runs brief transactions itself while commits take no longer than this. 0: never."""
    fair_lock: bool = True
    """Processes that write to one file queue up for it, by two lock files."""
    reader_threads: int = 4
    """How many long reads run at the same time."""

    def __post_init__(self) -> None:
        if self.synchronous not in {"full", "normal"}:
            raise ConfigError(f"synchronous: expected 'full' or 'normal', got {self.synchronous!r}")
        if self.busy_timeout_ms < 0:
            raise ConfigError(f"busy_timeout_ms: expected 0 or more, got {self.busy_timeout_ms}")
        if self.loop_commit_ms < 0:
            raise ConfigError(f"loop_commit_ms: expected 0 or more, got {self.loop_commit_ms}")
        for name in ("group_limit", "checkpoint_pages", "reader_threads"):
            number: int = getattr(self, name)
            if number < 1:
                raise ConfigError(f"{name}: expected at least 1, got {number}")
