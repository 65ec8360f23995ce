"""What the writer's thread works with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import apsw

from lash.clock import Clock
from lash.sqlite.batch import BatchRunner
from lash.sqlite.connection import Prepare, open_memory, open_writer
from lash.sqlite.jobs import Work
from lash.sqlite.lockfile import NoTurns, ThreadTurns, Turns, open_turns
from lash.sqlite.log import Checkpoints
from lash.sqlite.options import SQLiteOptions
from lash.sqlite.place import Place
from lash.sqlite.statements import Statements
from lash.sqlite.transaction import Transaction


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
        self._runner = BatchRunner(connection, settings.statements, settings.clock)
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

    def run(self, jobs: Sequence[Work[Transaction]]) -> None:
        """Give every job its outcome, in as few transactions as possible."""
        self._runner.run(jobs)

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
