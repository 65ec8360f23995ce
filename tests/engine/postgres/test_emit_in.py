"""An emission inside the caller's transaction on PostgreSQL."""

from __future__ import annotations

import pytest

import lash
from lash.plan.trigger.emit import encode_occurrence
from lash.postgres.engine.database import Database
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.rows.trigger.emit import emit_in
from lash.sqlkit.queries import load_queries
from tests.factories.trigger import pressed, subscribed


class _Changed(Exception):
    """Raised to roll the transaction back."""


async def _emit(database: Database, *keys: str, fail: bool) -> list[lash.EmitReport]:
    async with database.transaction() as transaction:
        reports = [await emit_in(transaction, encode_occurrence(pressed(key))) for key in keys]
        if fail:
            raise _Changed
    return reports


async def test_an_emission_shares_the_fate_of_its_transaction(postgres_storage_url: str) -> None:
    """An emission is committed or rolled back with its transaction."""
    options = PostgresOptions.from_url(postgres_storage_url)
    async with await lash.open(postgres_storage_url) as storage:
        await subscribed(storage)
        database = await Database.open(options, queries=load_queries("lash.postgres.sql", schema=options.schema))
        try:
            with pytest.raises(_Changed):
                await _emit(database, "1", fail=True)
            assert (await storage.processes.list()).processes == ()
            first, second, again = await _emit(database, "1", "2", "1", fail=False)
        finally:
            await database.close()
        assert first == again != second
        assert await storage.occurrences.emit(pressed()) == first
        assert len((await storage.processes.list()).processes) == 2
