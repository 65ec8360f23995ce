"""Reading: on the event loop for short reads, in threads for long ones."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import apsw

from lash.base.clock import Clock
from lash.errors import ConfigError
from lash.sqlite.engine.errors import as_lash_error, translate
from lash.sqlite.engine.file_guard import FileGuard
from lash.sqlite.engine.gil_yield import GilYield
from lash.sqlite.engine.jobs import Job
from lash.sqlite.engine.options import SQLiteValue
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Reader
from lash.sqlite.engine.write_lock import WriteLock

T = TypeVar("T")


class Snapshots:
    """Runs reads on its own connection, one body at a time."""

    def __init__(
        self, connection: apsw.Connection, statements: Statements, clock: Clock, file_guard: FileGuard | None = None
    ) -> None:
        self._connection = connection
        self._file_guard = file_guard
        self._statements = statements
        self._clock = clock
        self._reading = False

    def read(self, body: Callable[[Reader], T]) -> T:
        """Run the body on one snapshot; raise errors of lash, and exceptions of the body as they are."""
        self.refuse_nested()
        self._reading = True
        try:
            self._check_files()
            return self._read(body)
        except apsw.Error as error:
            raise translate(error, "reading") from error
        finally:
            self._reading = False

    def ask(self, shape: type[T], name: str, parameters: Mapping[str, SQLiteValue]) -> list[T]:
        """Run one query, which is a snapshot of its own, and return its rows in the given shape; raise errors of lash.

        It needs no transaction, whose begin and end would cost as much as a short query.
        """
        self.refuse_nested()
        self._check_files()
        return self._ask(shape, name, parameters)

    def data_version(self) -> int:
        """Return a number that changes when any other connection has committed."""
        self._check_files()
        try:
            return int(self._connection.execute("PRAGMA data_version").get)
        except apsw.Error as error:
            raise translate(error, "reading data_version") from error

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(apsw.Error):
            self._connection.close()

    def refuse_nested(self) -> None:
        """Raise ConfigError inside the body of a read."""
        if self._reading:
            raise ConfigError(
                "a read was started inside the body of another read; use the reader that the body received"
            )

    def _check_files(self) -> None:
        if self._file_guard is not None:
            self._file_guard.check_if_due()

    def _ask(self, shape: type[T], name: str, parameters: Mapping[str, SQLiteValue]) -> list[T]:
        reader = Reader(self._connection, self._statements, 0)
        try:
            return reader.shaped(shape, name, parameters)
        except BaseException:
            # A query that failed half-way would keep its snapshot.
            reader.abandon()
            raise

    def _read(self, body: Callable[[Reader], T]) -> T:
        try:
            self._statements.begin_read(self._connection)
            reader = Reader(self._connection, self._statements, self._clock.now_ms())
            try:
                value = body(reader)
            finally:
                reader.end()
            self._statements.control(self._connection, "commit")
        finally:
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")
        return value


class SharedSnapshots(Snapshots):
    """Runs reads on the writer's connection, between its transactions and read-only."""

    def __init__(
        self, connection: apsw.Connection, statements: Statements, clock: Clock, write_lock: WriteLock
    ) -> None:
        super().__init__(connection, statements, clock)
        self._write_lock = write_lock

    def close(self) -> None:
        """Do nothing: the connection belongs to the writer."""

    def _ask(self, shape: type[T], name: str, parameters: Mapping[str, SQLiteValue]) -> list[T]:
        with self._between_writes():
            return super()._ask(shape, name, parameters)

    def _read(self, body: Callable[[Reader], T]) -> T:
        with self._between_writes():
            return super()._read(body)

    @contextlib.contextmanager
    def _between_writes(self) -> Iterator[None]:
        self._write_lock.acquire()
        try:
            self._connection.execute("PRAGMA query_only = ON")
            try:
                yield
            finally:
                self._connection.execute("PRAGMA query_only = OFF")
        finally:
            self._write_lock.release()


class ReaderThreads:
    """A few threads for long reads, started on demand, each with its own connection."""

    def __init__(self, open_snapshots: Callable[[], Snapshots], gil_yield: GilYield, limit: int) -> None:
        self._open_snapshots = open_snapshots
        self._gil_yield = gil_yield
        self._limit = limit
        self._jobs: queue.SimpleQueue[Job[Reader] | None] = queue.SimpleQueue()
        self._threads: list[_ReaderThread] = []
        self._in_flight = 0

    def submit(self, job: Job[Reader]) -> None:
        """Queue a job. Only on the loop's thread."""
        self._in_flight += 1
        if self._in_flight > len(self._threads) < self._limit:
            self._threads.append(_ReaderThread(self._jobs, self._open_snapshots, self._deliver_soon))
        self._jobs.put(job)

    def stop(self) -> None:
        """Let the threads finish what is queued, close their connections and end."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until every thread has ended."""
        for thread in self._threads:
            thread.join()

    def _deliver_soon(self, job: Job[Reader]) -> None:
        self._gil_yield.deliver(lambda: self._deliver(job))

    def _deliver(self, job: Job[Reader]) -> None:
        self._in_flight -= 1
        self._gil_yield.finished(1)
        job.deliver()


class _ReaderThread(threading.Thread):
    """Runs one job after the other until it receives None."""

    def __init__(
        self,
        jobs: queue.SimpleQueue[Job[Reader] | None],
        open_snapshots: Callable[[], Snapshots],
        deliver_soon: Callable[[Job[Reader]], None],
    ) -> None:
        # A daemon thread: a program that exits without closing the storage must not hang on it.
        super().__init__(name="lash-sqlite-reader", daemon=True)
        self._jobs = jobs
        self._open_snapshots = open_snapshots
        self._deliver_soon = deliver_soon
        self._snapshots: Snapshots | None = None
        self.start()

    def run(self) -> None:
        while self._run_next():
            pass
        if self._snapshots is not None:
            self._snapshots.close()

    def _run_next(self) -> bool:
        # A separate function, so that no local variable keeps a job alive while the thread waits for the next.
        job = self._jobs.get()
        if job is None:
            return False
        if not job.is_cancelled:
            self._run_job(job)
        self._deliver_soon(job)
        return True

    def _run_job(self, job: Job[Reader]) -> None:
        try:
            if self._snapshots is None:
                self._snapshots = self._open_snapshots()
            self._snapshots.read(job.attempt)
        except BaseException as error:  # noqa: BLE001
            job.fail(as_lash_error(error, "reading"))
