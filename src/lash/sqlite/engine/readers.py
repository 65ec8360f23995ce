"""Reading: on the event loop for short reads, in threads for long ones."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

import apsw

from lash.base.clock import Clock
from lash.errors import ConfigError
from lash.sqlite.engine.errors import in_our_terms, translate
from lash.sqlite.engine.file_guard import Place
from lash.sqlite.engine.gil_yield import Lender
from lash.sqlite.engine.jobs import Work
from lash.sqlite.engine.lockfile import Turns
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Reader

T = TypeVar("T")


class Snapshots:
    """Reads through a connection of its own, one body at a time."""

    def __init__(
        self, connection: apsw.Connection, statements: Statements, clock: Clock, place: Place | None = None
    ) -> None:
        self._connection = connection
        self._place = place
        self._statements = statements
        self._clock = clock
        self._reading = False

    def read(self, body: Callable[[Reader], T]) -> T:
        """Run the body on one snapshot; raise errors of lash only, apart from what the body itself raises."""
        if self._reading:
            raise ConfigError("a read was started inside the body of another; use the reader that the body was given")
        self._reading = True
        try:
            self._check_place()
            return self._read(body)
        except apsw.Error as error:
            raise translate(error, "reading") from error
        finally:
            self._reading = False

    def data_version(self) -> int:
        """Return a number that is another one after any other connection has committed."""
        self._check_place()
        try:
            return int(self._connection.execute("PRAGMA data_version").get)
        except apsw.Error as error:
            raise translate(error, "asking for changes") from error

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(apsw.Error):
            self._connection.close()

    def _check_place(self) -> None:
        if self._place is not None:
            self._place.check_sometimes()

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
    """Reads through the writer's connection, between its transactions and without the right to write."""

    def __init__(self, connection: apsw.Connection, statements: Statements, clock: Clock, turns: Turns) -> None:
        super().__init__(connection, statements, clock)
        self._turns = turns

    def close(self) -> None:
        """Do nothing: the connection belongs to the writer."""

    def _read(self, body: Callable[[Reader], T]) -> T:
        self._turns.take()
        try:
            self._connection.execute("PRAGMA query_only = ON")
            try:
                return super()._read(body)
            finally:
                self._connection.execute("PRAGMA query_only = OFF")
        finally:
            self._turns.give_back()


class ReaderThreads:
    """A few threads for long reads, started when needed, each with its own way to read."""

    def __init__(self, open_snapshots: Callable[[], Snapshots], lender: Lender, limit: int) -> None:
        self._open_snapshots = open_snapshots
        self._lender = lender
        self._limit = limit
        self._jobs: queue.SimpleQueue[Work[Reader] | None] = queue.SimpleQueue()
        self._threads: list[_ReaderThread] = []
        self._unsettled = 0

    def submit(self, job: Work[Reader]) -> None:
        """Queue a job. Only on the loop's thread."""
        self._unsettled += 1
        if self._unsettled > len(self._threads) < self._limit:
            self._threads.append(_ReaderThread(self._jobs, self._open_snapshots, self._answer))
        self._jobs.put(job)

    def stop(self) -> None:
        """Let the threads finish what is queued, close their connections and end."""
        for _ in self._threads:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until every thread has ended."""
        for thread in self._threads:
            thread.join()

    def _answer(self, job: Work[Reader]) -> None:
        self._lender.answer(lambda: self._settle(job))

    def _settle(self, job: Work[Reader]) -> None:
        self._unsettled -= 1
        self._lender.settled(1)
        job.settle()


class _ReaderThread(threading.Thread):
    """Runs one job after the other until it is told to end."""

    def __init__(
        self,
        jobs: queue.SimpleQueue[Work[Reader] | None],
        open_snapshots: Callable[[], Snapshots],
        answer: Callable[[Work[Reader]], None],
    ) -> None:
        # A daemon: a program that ends without closing must not hang on this thread.
        super().__init__(name="lash-sqlite-reader", daemon=True)
        self._jobs = jobs
        self._open_snapshots = open_snapshots
        self._answer = answer
        self._snapshots: Snapshots | None = None
        self.start()

    def run(self) -> None:
        while self._serve_next():
            pass
        if self._snapshots is not None:
            self._snapshots.close()

    def _serve_next(self) -> bool:
        # A function of its own, so that nothing of a job stays in memory while the thread waits for the next.
        job = self._jobs.get()
        if job is None:
            return False
        if not job.abandoned:
            self._serve(job)
        self._answer(job)
        return True

    def _serve(self, job: Work[Reader]) -> None:
        try:
            if self._snapshots is None:
                self._snapshots = self._open_snapshots()
            self._snapshots.read(job.attempt)
        except BaseException as error:  # noqa: BLE001
            job.fail(in_our_terms(error, "reading"))
