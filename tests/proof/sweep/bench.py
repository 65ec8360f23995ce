"""A database that can be reset to a saved state, from which a sweep starts at every point."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import apsw
import msgspec

from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import URLHarness
from tests.proof.sweep.seam import Seam, installed

Lines = tuple[str, ...]
"""All rows of a database, as text, each behind the name of its table."""


class Bench(Protocol):
    """One database, its saved state, and storages with a seam below them."""

    backend: str

    @property
    def url(self) -> str:
        """Where the database is now."""
        ...

    @property
    def clock(self) -> ManualClock: ...

    def opened(self, seam: Seam) -> AbstractAsyncContextManager[Storage]:
        """Open a storage on the seam, and close it again."""
        ...

    async def lines(self) -> Lines:
        """Return the committed rows, read on a separate connection."""
        ...

    async def keep(self) -> None:
        """Save the current state as the one to start from."""
        ...

    async def restore(self) -> None:
        """Go back to the saved state."""
        ...

    async def note_numbers(self) -> None:
        """Remember the sequence numbers after the operation ran once."""
        ...

    async def align_numbers(self, *, done: bool) -> None:
        """Let sequences go on as if nothing had failed: numbers used by a failed try count as no difference."""
        ...

    async def problems(self) -> list[str]:
        """Return the database's own integrity errors."""
        ...


class SQLiteBench:
    """A file, and a copy of it from which every point starts."""

    backend = "sqlite"

    def __init__(self, directory: Path, empty: Path) -> None:
        """Begin with a copy of an empty storage."""
        self._directory = directory
        self._empty = empty
        self._kept = directory / "kept.db"
        self._now = directory / "0.db"
        self._restored = 0
        self.clock = ManualClock()
        shutil.copyfile(empty, self._now)

    def clear(self) -> None:
        """Start again, for another case."""
        self._begin_with(self._empty)
        self.clock = ManualClock()

    @property
    def url(self) -> str:
        return f"sqlite:///{self._now}"

    @asynccontextmanager
    async def opened(self, seam: Seam) -> AsyncIterator[Storage]:
        harness = URLHarness(self.backend, self.url, self.clock)
        # For the whole run: reader threads open their connections on first use.
        with installed(seam):
            try:
                yield await harness.open()
            finally:
                await harness.close()

    async def lines(self) -> Lines:
        return self.read()

    def read(self) -> Lines:
        """Return the committed rows; from any thread."""
        connection = apsw.Connection(str(self._now), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(15_000)
            connection.execute("BEGIN")
            tables = [str(name) for (name,) in connection.execute(_TABLES)]
            return tuple(line for table in tables for line in _rows(connection, table))
        finally:
            connection.close()

    async def keep(self) -> None:
        shutil.copyfile(self._now, self._kept)

    async def restore(self) -> None:
        self._begin_with(self._kept)

    def _begin_with(self, file: Path) -> None:
        for old in self._directory.glob(f"{self._now.name}*"):
            old.unlink()
        # A new name each time: no process may mistake the new file for one that it has open.
        self._restored += 1
        self._now = self._directory / f"{self._restored}.db"
        shutil.copyfile(file, self._now)

    async def note_numbers(self) -> None:
        """Do nothing: on SQLite an uncommitted number is given again."""

    async def align_numbers(self, *, done: bool) -> None:
        """Do nothing, for the same reason."""

    async def problems(self) -> list[str]:
        connection = apsw.Connection(str(self._now), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
            return found + [f"foreign key: {row}" for row in connection.execute("PRAGMA foreign_key_check")]
        finally:
            connection.close()


_TABLES = """
SELECT name FROM sqlite_schema
WHERE type = 'table' AND name GLOB 'lash_*' AND name <> 'lash_migrations'
ORDER BY name
"""


def _rows(connection: apsw.Connection, table: str) -> list[str]:
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    rows = cursor.fetchall()
    if not rows:
        return []
    names = [str(name) for name, *_ in connection.execute(f'SELECT name FROM pragma_table_info("{table}")')]
    return [f"{table} {msgspec.json.encode(dict(zip(names, row, strict=True))).decode()}" for row in rows]
