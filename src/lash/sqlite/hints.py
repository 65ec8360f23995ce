"""Hints on SQLite: at once inside a storage, by asking for ``data_version`` across storages and processes."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from lash.backend.hints import LocalHints, LocalListener, session_tag
from lash.errors import LashError
from lash.sqlite.engine.database import Database
from lash.sqlkit.rows import Number

_LIVELY_S: Final = 1.0
_ASK_LIVELY_S: Final = 0.005
_ASK_CALM_S: Final = 0.025


class SQLiteHints:
    """The hints of one SQLite storage; the contract is `lash.stores.hints.Hints`.

    While somebody waits, the database is asked whether anybody has committed anything, once for all who wait: every
    5 ms, and every 25 ms when nothing was committed for a second. Asking takes microseconds, but to be woken for it so
    often is what a worker costs that has nothing to do. Nothing runs while nobody waits.
    """

    def __init__(self, database: Database) -> None:
        self._hints = LocalHints()
        self._file = _File(database)

    def listen(self, *, everything: bool = False, work: bool = False) -> LocalListener:
        listener = _FileListener(self._hints, self._file, everything=everything, work=work)
        self._hints.add(listener)
        return listener

    def notify(
        self,
        *,
        process: bool = True,
        work: bool = True,
        session_id: str | None = None,
        later: bool = False,  # noqa: ARG002 (nobody is told: others ask the file)
    ) -> None:
        self._hints.give(process=process, work=work, tag=None if session_id is None else session_tag(session_id))

    async def close(self) -> None:
        self._hints.close()


class _FileListener(LocalListener):
    """A listener that knows up to which state of the file it has looked.

    That is None before its first wait, which returns at once, and where the file could not be asked.
    """

    def __init__(self, hints: LocalHints, file: _File, *, everything: bool, work: bool) -> None:
        super().__init__(hints, everything=everything, work=work)
        self._file = file
        self._version: int | None = None
        self._last_change: int | None = None

    def begin_waiting(self) -> None:
        self._file.watch(self)

    def end_waiting(self) -> None:
        self._file.unwatch(self)

    def catch_up(self) -> None:
        if self._file.durable:
            try:
                self.has_missed(self._file.version())
            except LashError:
                self._version = self._last_change = None

    def has_missed(self, version: int) -> bool:
        """Return whether there is something new for this listener in the file of this version, and note that."""
        if version == self._version:
            return False
        # Most commits concern no process, and asking about all that is waited for costs more than this.
        any_change = self.everything or self.work
        last_change = None if any_change else self._file.last_change(version)
        is_new = any_change or last_change != self._last_change
        self._version, self._last_change = version, last_change
        return is_new


class _File:
    """The one timer that asks the file for changes, on behalf of all who wait."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watching: set[_FileListener] = set()
        self._asking: asyncio.Handle | None = None
        self._seen: int | None = None
        self._changed_at = 0.0
        self._looked_at: int | None = None
        self._last_change = 0

    @property
    def durable(self) -> bool:
        """Whether anybody else can write; a database in memory has one storage."""
        return self._database.durable

    def version(self) -> int:
        """Return a number that changes with every commit."""
        version = self._database.data_version()
        if version != self._seen:
            self._seen, self._changed_at = version, time.monotonic()
        return version

    def last_change(self, version: int) -> int:
        """Return the place of the newest change of a process; it is read once for each version."""
        if version != self._looked_at:
            last = self._database.read(lambda reader: reader.one(Number, "process_last_change"))
            self._looked_at, self._last_change = version, 0 if last is None else last.number
        return self._last_change

    def watch(self, listener: _FileListener) -> None:
        """Give the listener a hint once the file has changed."""
        if self.durable:
            self._watching.add(listener)
            if self._asking is None:
                self._asking = asyncio.get_running_loop().call_soon(self._ask)

    def unwatch(self, listener: _FileListener) -> None:
        """End that; the last one to go ends the asking."""
        self._watching.discard(listener)
        if self._asking is not None and not self._watching:
            self._asking.cancel()
            self._asking = None

    def _ask(self) -> None:
        self._look()
        lively = time.monotonic() - self._changed_at < _LIVELY_S
        loop = asyncio.get_running_loop()
        self._asking = loop.call_later(_ASK_LIVELY_S if lively else _ASK_CALM_S, self._ask)

    def _look(self) -> None:
        try:
            version = self.version()
            for listener in self._watching:
                if listener.has_missed(version):
                    listener.hint()
        except LashError:
            # Whoever looks now meets the same trouble, and is in the place to decide what follows from it.
            for listener in self._watching:
                listener.hint()
