"""Hints on SQLite: at once inside a storage, by asking for ``data_version`` across storages and processes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from lash.errors import LashError
from lash.sqlite.database import Database
from lash.sqlkit.rows import Number

_ASK_EVERY_S: Final = 0.005


class SQLiteSignals:
    """The hints of one SQLite storage; the contract is `lash.stores.notify.ChangeSignals`.

    While somebody waits, the database is asked every 5 ms whether anybody has committed anything, which costs a few
    microseconds. Nothing runs while nobody waits.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hinted = asyncio.Event()
        self._version: int | None = None
        self._last_change: int | None = None

    async def wait(self, timeout_s: float) -> None:
        asking = asyncio.create_task(self._ask()) if self._database.durable else None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._hinted.wait()
        finally:
            if asking is not None:
                asking.cancel()
        self._hinted.clear()
        if self._database.durable:
            # The caller looks only now, so it sees all that was committed by now: no second hint for that.
            self._has_changed()

    def touch(self) -> None:
        self._hinted.set()

    async def close(self) -> None:
        """Do nothing: whoever waits is the only one for whom something runs."""

    async def _ask(self) -> None:
        """Give a hint once the database has changed."""
        while not self._has_changed():  # noqa: ASYNC110 (nobody else could tell)
            await asyncio.sleep(_ASK_EVERY_S)
        self._hinted.set()

    def _has_changed(self) -> bool:
        """Return whether a process was written to since the last call, as far as can be known."""
        before = self._last_change
        try:
            version = self._database.data_version()
            if version == self._version:
                return False
            # Most commits concern no process, and asking about all that is waited for costs more than this.
            last = self._database.read(lambda reader: reader.one(Number, "process_last_change"))
        except LashError:
            # Whoever looks now meets the same trouble, and is in the place to decide what follows from it.
            return True
        self._version, self._last_change = version, 0 if last is None else last.number
        return self._last_change != before
