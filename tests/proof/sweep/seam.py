"""The seam at the connections of both backends: it numbers the statements of an operation and strikes at one of them.

It stands where the engines get their connections, below all of lash and above the drivers, so that BEGIN, SAVEPOINT,
COMMIT and every read are points like any other. Product code knows nothing of it.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import apsw
import asyncpg
import pytest

from lash.sqlite.engine.connection import open_reader, open_writer
from lash.sqlite.engine.log_space import LogSpace


class When(enum.StrEnum):
    """Before the statement, so that it never runs; or after it, so that its answer is lost."""

    BEFORE = "before"
    AFTER = "after"


class Blow(enum.StrEnum):
    """What happens at a point."""

    FAIL = "fail"
    """The driver raises: an I/O error on SQLite; on PostgreSQL the line is cut, on the server's side too."""
    REFUSE = "refuse"
    """Another error: on SQLite one for which the whole transaction is gone, on PostgreSQL a deadlock."""
    CANCEL = "cancel"
    """The caller's task is cancelled."""
    KILL = "kill"
    """This process gets SIGKILL."""


class Strike(NamedTuple):
    """One point of an operation, and what happens there; statements count from 0."""

    number: int
    when: When
    blow: Blow

    def __str__(self) -> str:
        return f"{self.blow} {self.when} statement {self.number}"


class Seam:
    """Numbers statements while it is armed, and strikes once."""

    def __init__(self, strike: Strike | None = None) -> None:
        self.strike = strike
        self.struck = False
        self.armed = False
        self.texts: list[str] = []
        self.observe: Callable[[], None] | None = None
        """Called after every statement, between it and the next."""
        self.observe_server: Callable[[], Awaitable[None]] | None = None
        """The same on PostgreSQL."""
        self.looking = False
        """Whether the operation waits for such an observation, and for nothing of its own."""
        self.victim: asyncio.Task[Any] | None = None
        """The task that a cancellation hits."""
        self._number = -1

    def note(self, text: str) -> int | None:
        """Number a statement, if statements count now."""
        # Hints to other storages are sent beside the operation, at any time; one that is part of a write counts.
        if not self.armed or ("pg_notify" in text and "UPDATE" not in text):
            return None
        self.texts.append(" ".join(text.split()))
        self._number += 1
        return self._number

    def hits(self, number: int | None, when: When) -> bool:
        """Return whether to strike here and now, which happens once."""
        strike = self.strike
        if strike is None or self.struck or number is None or (strike.number, strike.when) != (number, when):
            return False
        self.struck = True
        return True

    @property
    def blow(self) -> Blow:
        assert self.strike is not None
        return self.strike.blow


class SQLiteConnection:
    """Looks like a connection of the driver to the engine."""

    def __init__(self, connection: apsw.Connection, seam: Seam) -> None:
        self._connection = connection
        self._seam = seam

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the driver's connection has)
        return getattr(self._connection, name)

    @property
    def unnumbered(self) -> apsw.Connection:
        """The connection itself, for statements that do not count."""
        return self._connection

    def execute(self, statements: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401 (the driver's)
        return self.cursor().execute(statements, *values, **options)

    def cursor(self) -> SQLiteCursor:
        return SQLiteCursor(self, self._connection.cursor())

    def pass_on(self, text: str, run: Callable[[], Any]) -> Any:  # noqa: ANN401 (the driver's)
        """Number a statement and run it, or strike."""
        number = self._seam.note(text)
        if self._seam.hits(number, When.BEFORE):
            self._strike()
        cursor = run()
        if self._seam.hits(number, When.AFTER):
            # What a statement writes is written before its first row; the rest is read so that it has ended, unless
            # the engine will go on and read it.
            if self._seam.blow is not Blow.CANCEL:
                cursor.fetchall()
            self._strike()
        if number is not None and self._seam.observe is not None:
            self._seam.observe()
        return cursor

    def _strike(self) -> None:
        blow = self._seam.blow
        if blow is Blow.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif blow is Blow.CANCEL:
            _cancel_from_any_thread(self._seam.victim)
        elif blow is Blow.REFUSE:
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")
            raise apsw.FullError("made for the sweep: database or disk is full")
        else:
            raise apsw.IOError("made for the sweep: disk I/O error")


class SQLiteCursor:
    """Looks like a cursor of the driver to the engine."""

    def __init__(self, connection: SQLiteConnection, cursor: apsw.Cursor) -> None:
        self._connection = connection
        self._cursor = cursor

    def execute(self, statements: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401 (the driver's)
        run = functools.partial(self._cursor.execute, statements, *values, **options)
        # The engine explains a statement on its first use, which runs nothing.
        return run() if "explain" in options else self._connection.pass_on(statements, run)

    def executemany(self, statements: str, *values: Any) -> Any:  # noqa: ANN401 (the driver's)
        return self._connection.pass_on(statements, functools.partial(self._cursor.executemany, statements, *values))

    def close(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 (the driver's)
        self._cursor.close(force)


def _cancel_from_any_thread(victim: asyncio.Task[Any] | None) -> None:
    assert victim is not None
    loop = victim.get_loop()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        cancelled = threading.Event()
        loop.call_soon_threadsafe(victim.cancel)
        # One iteration later, so that the caller has gone before the writer goes on.
        loop.call_soon_threadsafe(loop.call_soon, cancelled.set)
        assert cancelled.wait(30)
    else:
        victim.cancel()


def server_connection(seam: Seam) -> type[asyncpg.Connection[asyncpg.Record]]:
    """Return a class of connections for the driver's pool that passes every statement through the seam."""

    class ServerConnection(asyncpg.Connection):
        async def fetch(self, query: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401 (the driver's)
            return await self._pass(query, super().fetch, values, options)

        async def fetchmany(self, query: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401 (the driver's)
            return await self._pass(query, super().fetchmany, values, options)

        async def execute(self, query: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401 (the driver's)
            return await self._pass(query, super().execute, values, options)

        async def _pass(
            self, text: str, run: Callable[..., Awaitable[Any]], values: tuple[Any, ...], options: dict[str, Any]
        ) -> Any:  # noqa: ANN401 (the driver's)
            number = seam.note(text)
            if seam.hits(number, When.BEFORE):
                await self._strike()
            answer = await run(text, *values, **options)
            if seam.hits(number, When.AFTER):
                await self._strike()
            if number is not None and seam.observe_server is not None:
                await seam.observe_server()
            return answer

        async def _strike(self) -> None:
            if seam.blow is Blow.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            elif seam.blow is Blow.CANCEL:
                assert seam.victim is not None
                seam.victim.cancel()
                await asyncio.sleep(0)
            elif seam.blow is Blow.REFUSE:
                raise asyncpg.DeadlockDetectedError("made for the sweep: deadlock detected")
            else:
                self.terminate()
                raise asyncpg.ConnectionDoesNotExistError("made for the sweep: connection was closed")

    return ServerConnection


@contextmanager
def installed(seam: Seam) -> Iterator[None]:
    """Put the seam below every storage opened in the context."""
    create_pool = asyncpg.create_pool
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lash.sqlite.engine.engine.open_writer", lambda *given: SQLiteConnection(open_writer(*given), seam)
        )
        patch.setattr(
            "lash.sqlite.engine.database.open_reader", lambda *given: SQLiteConnection(open_reader(*given), seam)
        )
        # The log gets its space after the answer to a commit, at any time; its statements are no part of an operation.
        patch.setattr(
            "lash.sqlite.engine.wal.LogSpace", lambda connection, *given: LogSpace(connection.unnumbered, *given)
        )
        patch.setattr(asyncpg, "create_pool", functools.partial(create_pool, connection_class=server_connection(seam)))
        yield
