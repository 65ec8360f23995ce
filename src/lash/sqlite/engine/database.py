"""The SQLite engine: one writer thread with group commit, readers beside it. It knows no table of lash."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import apsw

from lash.base.clock import Clock
from lash.errors import ConfigError, StorageClosed
from lash.sqlite.engine.connection import Prepare, open_reader
from lash.sqlite.engine.engine import Engine, Settings
from lash.sqlite.engine.errors import translate
from lash.sqlite.engine.gil_yield import Lender
from lash.sqlite.engine.inline_writes import ShortCut
from lash.sqlite.engine.jobs import Job
from lash.sqlite.engine.location import bundled_version, check_sqlite_version, checked_path
from lash.sqlite.engine.options import SQLiteOptions, SQLiteValue, StatementHook
from lash.sqlite.engine.readers import ReaderThreads, SharedSnapshots, Snapshots
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Reader, Transaction
from lash.sqlite.engine.writer import Writer

__all__ = ["Database", "Prepare", "Reader", "SQLiteOptions", "SQLiteValue", "StatementHook", "Transaction"]

T = TypeVar("T")


class Database:
    """One SQLite database, used from the event loop that opened it; any number of processes may share a file."""

    durable: bool
    """Whether what was written is still there after `close`: true for a file, false in memory."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        """Start opening; use `open`, which waits for it."""
        self.durable = settings.path is not None
        self._process = os.getpid()
        self._loop = loop
        self._settings = settings
        self._closed = False
        self._inline: Snapshots | None = None
        self._lender = Lender(loop, enabled=settings.options.lend_gil)
        self._writer = Writer(settings, self._lender, self._end_reading)
        self._short_cut = ShortCut(loop, self._writer)
        self._threads = ReaderThreads(self._open_snapshots, self._lender, settings.options.reader_threads)

    @classmethod
    async def open(
        cls,
        path: str | None,
        *,
        queries: Mapping[str, str],
        prepare: Prepare,
        options: SQLiteOptions,
        clock: Clock,
        on_statement: StatementHook | None = None,
    ) -> Database:
        """Open the file, or a new database in memory when ``path`` is None.

        ``prepare`` is called once, on the writer's thread and with the right to write, before anything else can
        use the database; what it raises comes out here, and the file is closed again. Its second argument is
        true when the database holds nothing yet. ``queries`` take ``:name`` parameters.
        """
        check_sqlite_version(bundled_version())
        settings = Settings(
            path=None if path is None else checked_path(path),
            statements=Statements(queries, on_statement),
            prepare=prepare,
            options=options,
            clock=clock,
        )
        database = cls(settings, asyncio.get_running_loop())
        await database._wait_until_open()
        return database

    async def write(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a write transaction and return its value once that is committed.

        Everything the body wrote is applied, or nothing when it raises or the commit fails. The body runs on
        the writer's thread, after all bodies queued before it, and may be run again when another one broke their
        common transaction: it must not change anything but the database. A caller that is cancelled while
        its body waits leaves nothing behind; once the body runs, its outcome stands.
        """
        self._check_usable()
        future: asyncio.Future[T] = self._loop.create_future()
        self._short_cut.hand_over()
        self._writer.submit(Job(body, future))
        return await future

    async def write_briefly(self, body: Callable[[Transaction], T]) -> T:
        """Do as `write` does with a body that touches few rows, however much is stored.

        It may run on the event loop's own thread, at once, while that waits for the disk; see
        `lash.sqlite.engine.inline_writes`.
        """
        self._check_usable()
        errand = self._short_cut.try_at_once(body)
        if errand is not None:
            return errand.outcome()
        future: asyncio.Future[T] = self._loop.create_future()
        self._short_cut.submit(Job(body, future))
        return await future

    def read(self, body: Callable[[Reader], T]) -> T:
        """Run the body at once, on one snapshot of what is committed. It blocks the event loop: keep it short."""
        return self._check_usable().read(body)

    def teach(self, queries: Mapping[str, str]) -> None:
        """Add named queries to those that it was opened with."""
        self._settings.statements.teach(queries)

    def data_version(self) -> int:
        """Return a number that is another one after anybody has committed to the file; it takes microseconds.

        A database in memory has one connection, which does not count what it commits itself.
        """
        return self._check_usable().data_version()

    async def read_in_thread(self, body: Callable[[Reader], T]) -> T:
        """Run the body on one snapshot of what is committed, in a thread; for reads that take long."""
        self._check_usable()
        future: asyncio.Future[T] = self._loop.create_future()
        self._threads.submit(Job(body, future))
        self._lender.expect()
        return await future

    async def close(self) -> None:
        """Finish what was accepted and close; later calls raise `StorageClosed`, a second close is harmless.

        Unlike everything else it may be called from another event loop, should the first one be gone.
        """
        self._check_process()
        self._begin_closing()
        at_home = asyncio.get_running_loop() is self._loop
        if at_home:
            self._lender.expect()
        try:
            await asyncio.wrap_future(self._writer.ended)
        finally:
            if at_home:
                self._lender.settled(1)
        self._writer.join()

    async def _wait_until_open(self) -> None:
        self._lender.expect()
        try:
            await asyncio.wrap_future(self._writer.opened)
            self._inline = self._open_snapshots()
        except asyncio.CancelledError:
            self._begin_closing()
            raise
        except BaseException:
            await self.close()
            raise
        finally:
            self._lender.settled(1)

    def _open_snapshots(self) -> Snapshots:
        """Open a way to read; the writer has opened the database before."""
        settings = self._settings
        engine: Engine = self._writer.opened.result()
        if settings.path is None:
            return SharedSnapshots(engine.connection, settings.statements, settings.clock, engine.turns)
        if engine.place is not None:
            # A reader must not be the first to see another file.
            engine.place.check()
        try:
            connection = open_reader(settings.path, settings.options)
        except apsw.Error as error:
            raise translate(error, f"opening {settings.path} for reading") from error
        return Snapshots(connection, settings.statements, settings.clock, engine.place)

    def _begin_closing(self) -> None:
        if not self._closed:
            self._closed = True
            self._short_cut.hand_over()
            self._threads.stop()
            self._writer.stop()

    def _end_reading(self) -> None:
        """Close every reader. The writer's thread calls it, so that its connection is the last one to close."""
        self._threads.join()
        if self._inline is not None:
            self._inline.close()

    def _check_usable(self) -> Snapshots:
        self._check_process()
        if self._closed or self._inline is None:
            raise StorageClosed
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise ConfigError(
                "this storage belongs to another event loop, or is used from a thread without one; open one storage "
                "for each event loop (each asyncio.run makes a new one) and use it from there"
            )
        return self._inline

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ConfigError(
                "this storage was opened before the process forked; open it anew in the child, or use the "
                "'spawn' start method"
            )
