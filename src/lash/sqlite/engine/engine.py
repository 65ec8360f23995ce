"""What the writer's thread works with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import apsw

from lash.base.clock import Clock
from lash.sqlite.engine.connection import Prepare, open_memory, open_writer
from lash.sqlite.engine.file_guard import Place
from lash.sqlite.engine.group_commit import BatchRunner
from lash.sqlite.engine.jobs import Work
from lash.sqlite.engine.lockfile import NoTurns, ThreadTurns, Turns, open_turns
from lash.sqlite.engine.options import SQLiteOptions
from lash.sqlite.engine.statements import Statements
from lash.sqlite.engine.transaction import Transaction
from lash.sqlite.engine.wal import Checkpoints


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that the parts of one database have in common."""

    path: str | None
    statements: Statements
    prepare: Prepare
    options: SQLiteOptions
    clock: Clock


class Engine:
    """The writing connection, the turns it takes, and the log it keeps short."""

    def __init__(self, connection: apsw.Connection, turns: Turns, settings: Settings) -> None:
        self.connection = connection
        self.turns = turns
        self.place = None if settings.path is None else Place(settings.path)
        self._runner = BatchRunner(
            connection, settings.statements, settings.clock, loop_commit_ms=settings.options.loop_commit_ms
        )
        self._busy_timeout_ms = settings.options.busy_timeout_ms
        self._checkpoints = (
            None if settings.path is None else Checkpoints(connection, settings.statements, settings.options)
        )

    def take_turn(self) -> None:
        """Wait for the right to write, and look whether there still is something to write to."""
        self.turns.take()
        try:
            if self.place is not None:
                self.place.check()
        except BaseException:
            self.turns.give_back()
            raise

    def try_turn(self) -> bool:
        """Take the right to write if it can be had at once; whatever stands in the way, `take_turn` tells."""
        if not self.turns.try_take():
            return False
        if self.place is not None and not self.place.is_as_it_was():
            self.turns.give_back()
            return False
        return True

    def run(self, jobs: Sequence[Work[Transaction]]) -> None:
        """Give every job its outcome, in as few transactions as possible."""
        self._runner.run(jobs)

    def run_now(self, jobs: Sequence[Work[Transaction]]) -> bool:
        """Give every job its outcome without waiting for a lock; return False, with nothing done, if one is held."""
        self.connection.set_busy_timeout(0)
        try:
            if not self._runner.try_begin():
                return False
        finally:
            self.connection.set_busy_timeout(self._busy_timeout_ms)
        self._runner.run(jobs, begun=True)
        return True

    @property
    def commits_quickly(self) -> bool:
        """Whether the last commits took so little time that the event loop may wait for the next."""
        return self._runner.commits_quickly

    @property
    def is_untidy(self) -> bool:
        """Whether `tidy` has something to do."""
        return self._checkpoints is not None and self._checkpoints.is_due

    def tidy(self) -> None:
        """Do what can wait until the callers have their answers."""
        if self._checkpoints is not None:
            self._checkpoints.run_if_due()

    def close(self) -> None:
        """Close the connection; the last one of all processes copies the log back and removes it."""
        try:
            self.connection.close()
        finally:
            self.turns.close()


def open_engine(settings: Settings) -> Engine:
    """Open and prepare the database, with the right to write held all the while."""
    if settings.path is None:
        return Engine(open_memory(settings.options, settings.prepare), ThreadTurns(), settings)
    turns = _open_turns(settings.path, settings.options)
    try:
        turns.take()
        try:
            connection = open_writer(settings.path, settings.options, settings.prepare)
        finally:
            turns.give_back()
    except BaseException:
        turns.close()
        raise
    return Engine(connection, turns, settings)


def _open_turns(path: str, options: SQLiteOptions) -> Turns:
    if not options.take_turns:
        return NoTurns()
    return open_turns(path, timeout_ms=options.busy_timeout_ms)
