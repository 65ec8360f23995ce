"""One SQLite database: where its writes and reads run.

A write runs on the writer's thread (`writer`), in one transaction with all others that wait there (`group_commit`). A
brief write may run on the event loop itself (`inline_writes`). Short reads run on the loop, long ones in reader threads
(`readers`). While threads work, the loop yields the interpreter to them (`gil_yield`). Processes that share the file
take a fair lock (`write_lock`) and check that it is still the same file (`file_guard`); the writer keeps the
write-ahead log short (`wal`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import apsw

from lash.base.clock import Clock
from lash.base.opener import Opener
from lash.base.seal import PLAIN, Seals
from lash.errors import StorageClosed
from lash.sqlite.engine.connection import Prepare, open_reader
from lash.sqlite.engine.engine import Engine, Settings
from lash.sqlite.engine.errors import translate
from lash.sqlite.engine.gil_yield import GilYield
from lash.sqlite.engine.inline_writes import InlineWrites
from lash.sqlite.engine.jobs import QueuedJob
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
    """Whether written data survives `close`: True for a file, False in memory."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        """Start opening; use `open`, which waits for it."""
        self.durable = settings.path is not None
        self.path = settings.path
        self.on_write: Callable[[], None] | None = None
        """Called on the event loop after each write that may have committed."""
        self._opener = Opener(loop)
        self._loop = loop
        self._settings = settings
        self._closed = False
        self._loop_reads: Snapshots | None = None
        self._writer_reads: Snapshots | None = None
        """Reads on the writer's connection while the loop holds it; None in memory, where all reads use it."""
        self._known_reads: set[str] = set()
        """The queries that a connection for reading only has run, and so has shown to write nothing."""
        self._gil_yield = GilYield(loop, enabled=settings.options.yield_gil)
        self._writer = Writer(settings, self._gil_yield, self._end_reading)
        self._inline_writes = InlineWrites(loop, self._writer)
        self._threads = ReaderThreads(self._open_snapshots, self._gil_yield, settings.options.reader_threads)

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
        seals: Seals = PLAIN,
    ) -> Database:
        """Open the file, or a new database in memory when ``path`` is None.

        ``prepare`` is called once, on the writer's thread and under the write lock, before anything else can use the
        database. If it raises, the file is closed and the exception propagates. Its second argument is True if the
        database is empty. ``queries`` take ``:name`` parameters.
        """
        check_sqlite_version(bundled_version())
        settings = Settings(
            path=None if path is None else checked_path(path),
            statements=Statements(queries, on_statement, seals),
            prepare=prepare,
            options=options,
            clock=clock,
        )
        database = cls(settings, asyncio.get_running_loop())
        await database._wait_until_open()
        return database

    async def write(self, body: Callable[[Transaction], T]) -> T:
        """Run the body in a write transaction and return its value once that is committed.

        Everything the body wrote is applied, or nothing if it raises or the commit fails. The body runs on the
        writer's thread, after all bodies queued before it. It may run again if another body broke their common
        transaction, so it must not change anything but the database. A caller that is cancelled before its body runs
        leaves no trace; once the body runs, its outcome stands.
        """
        self._check_usable()
        future: asyncio.Future[T] = self._loop.create_future()
        self._inline_writes.hand_over()
        self._writer.submit(QueuedJob(body, future))
        return await self._written(future)

    async def write_briefly(self, body: Callable[[Transaction], T]) -> T:
        """Do the same as `write` for a body that touches few rows, however much is stored.

        It may run on the event loop's own thread, which then waits for the disk; see `inline_writes`.
        """
        self._check_usable()
        job = self._inline_writes.try_at_once(body)
        if job is not None:
            if self.on_write is not None:
                self.on_write()
            return job.outcome()
        future: asyncio.Future[T] = self._loop.create_future()
        self._inline_writes.submit(QueuedJob(body, future))
        return await self._written(future)

    def read(self, body: Callable[[Reader], T]) -> T:
        """Run the body at once, on one snapshot of what is committed. It blocks the event loop: keep it short."""
        return self._check_usable().read(body)

    def ask(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> list[T]:
        """Run one query at once and return its rows; cheaper than `read`. It blocks the event loop: keep it short.

        It mostly runs on the writer's connection, which has the pages that this storage has written. Another connection
        reads them again after each commit.
        """
        snapshots = self._check_usable()
        if self._writer_reads is None or name not in self._known_reads:
            rows = snapshots.ask(shape, name, parameters)
            self._known_reads.add(name)
            return rows
        snapshots.refuse_nested()
        with self._writer.between_writes() as is_held:
            return (self._writer_reads if is_held else snapshots).ask(shape, name, parameters)

    @property
    def now_ms(self) -> int:
        """The clock."""
        return self._settings.clock.now_ms()

    @property
    def seals(self) -> Seals:
        """What seals the values of this database."""
        return self._settings.statements.seals

    def add_queries(self, queries: Mapping[str, str]) -> None:
        """Add named queries."""
        self._settings.statements.add_queries(queries)
        self._known_reads -= queries.keys()

    def data_version(self) -> int:
        """Return a number that changes after any commit to the file; it takes microseconds.

        A database in memory has one connection, and the number does not count that connection's own commits.
        """
        return self._check_usable().data_version()

    async def read_in_thread(self, body: Callable[[Reader], T]) -> T:
        """Run the body on one snapshot of what is committed, in a thread; for reads that take long."""
        self._check_usable()
        future: asyncio.Future[T] = self._loop.create_future()
        self._threads.submit(QueuedJob(body, future))
        self._gil_yield.expect()
        return await future

    async def close(self) -> None:
        """Finish accepted work and close; later calls raise `StorageClosed`, a second close does nothing.

        Unlike all other methods it may be called from another event loop if the first one is closed.
        """
        self._opener.check_process()
        self._begin_closing()
        is_same_loop = asyncio.get_running_loop() is self._loop
        if is_same_loop:
            self._gil_yield.expect()
        try:
            await asyncio.wrap_future(self._writer.ended)
        finally:
            if is_same_loop:
                self._gil_yield.finished(1)
        self._writer.join()

    async def _written(self, future: asyncio.Future[T]) -> T:
        try:
            return await future
        finally:
            if self.on_write is not None:
                self.on_write()

    async def _wait_until_open(self) -> None:
        self._gil_yield.expect()
        try:
            await asyncio.wrap_future(self._writer.opened)
            self._loop_reads = self._open_snapshots()
            self._writer_reads = self._open_writer_reads()
        except asyncio.CancelledError:
            self._begin_closing()
            raise
        except BaseException:
            await self.close()
            raise
        finally:
            self._gil_yield.finished(1)

    def _open_snapshots(self) -> Snapshots:
        """Open a connection for reading; the writer has already opened the database."""
        settings = self._settings
        engine: Engine = self._writer.opened.result()
        if settings.path is None:
            return SharedSnapshots(engine.connection, settings.statements, settings.clock, engine.write_lock)
        if engine.file_guard is not None:
            # A reader must not open a file that replaced the writer's.
            engine.file_guard.check()
        try:
            connection = open_reader(settings.path, settings.options)
        except apsw.Error as error:
            raise translate(error, f"opening {settings.path} for reading") from error
        return Snapshots(connection, settings.statements, settings.clock, engine.file_guard)

    def _open_writer_reads(self) -> Snapshots | None:
        settings, engine = self._settings, self._writer.opened.result()
        if settings.path is None:
            return None
        return Snapshots(engine.connection, settings.statements, settings.clock, engine.file_guard)

    def _begin_closing(self) -> None:
        if not self._closed:
            self._closed = True
            self._inline_writes.hand_over()
            self._threads.stop()
            self._writer.stop()

    def _end_reading(self) -> None:
        """Close every reader. The writer's thread calls it, so that its connection closes last."""
        self._threads.join()
        if self._loop_reads is not None:
            self._loop_reads.close()

    def _check_usable(self) -> Snapshots:
        self._opener.check_process()
        if self._closed or self._loop_reads is None:
            raise StorageClosed
        self._opener.check_loop()
        return self._loop_reads
