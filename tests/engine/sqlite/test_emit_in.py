"""An emission inside the caller's transaction on SQLite."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import lash
from lash.base.clock import SystemClock
from lash.plan.trigger.emit import encode_occurrence
from lash.sqlite.engine.database import Database, SQLiteOptions, Transaction
from lash.sqlite.rows.trigger.emit import emit_in
from lash.sqlkit.queries import load_queries
from tests.factories.trigger import pressed, subscribed


class _Changed(Exception):
    """Raised to roll the transaction back."""


def _ready(_connection: apsw.Connection, _new: bool) -> None:  # noqa: FBT001 - the engine's signature
    """The storage has created the tables."""


async def test_an_emission_shares_the_fate_of_its_transaction(tmp_path: Path) -> None:
    """An emission is committed or rolled back with its transaction."""
    path = str(tmp_path / "lash.db")
    async with await lash.open(f"sqlite:///{path}") as storage:
        await subscribed(storage)
        database = await Database.open(
            path,
            queries=load_queries("lash.sqlite.sql"),
            prepare=_ready,
            options=SQLiteOptions(),
            clock=SystemClock(),
        )

        def failing(transaction: Transaction) -> None:
            assert len(emit_in(transaction, encode_occurrence(pressed())).started_process_ids) == 1
            raise _Changed

        def twice(transaction: Transaction) -> list[lash.EmitReport]:
            return [emit_in(transaction, encode_occurrence(pressed(key))) for key in ("1", "2", "1")]

        try:
            with pytest.raises(_Changed):
                await database.write(failing)
            assert (await storage.processes.list()).processes == ()
            first, second, again = await database.write(twice)
        finally:
            await database.close()
        assert first == again != second
        assert await storage.occurrences.emit(pressed()) == first
        assert len((await storage.processes.list()).processes) == 2
