"""The search for damage finds every kind that raw SQL can plant, and says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import apsw
import asyncpg
import pytest

from lash.cli.audit import file_problems
from lash.testing.postgres_server import PostgresServer
from tests.backends import scratch_database
from tests.proof.fuzz.damage import CHANGES, FREE, KINDS, REMOVABLE, Planted, is_time
from tests.proof.fuzz.rows import Fortress, PostgresFortress, SQLiteFortress

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


PARTS = 8
"""Tests among which the columns are divided, so that each ends in time."""


@pytest.fixture(scope="module")
def sqlite_fortress(tmp_path_factory: pytest.TempPathFactory) -> Fortress:
    return SQLiteFortress(tmp_path_factory.mktemp("damage"))


@pytest.fixture(scope="module")
def postgres_fortress(postgres_server: PostgresServer) -> Iterator[Fortress]:
    with scratch_database(postgres_server.url) as url:
        yield PostgresFortress(url, "lash")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_damage_is_found(backend_name: str, request: pytest.FixtureRequest, kind: str) -> None:
    """Each planted damage of a kind is named, with what to do."""
    fortress: Fortress = request.getfixturevalue(f"{backend_name}_fortress")

    async def unnoticed() -> list[tuple[Planted, object]]:
        found: list[tuple[Planted, object]] = []
        for planted in KINDS[kind]:
            async with fortress.struck(planted.statement) as storage:
                findings = await storage.maintenance.find_damage()
            named = any(planted.names(each.where, each.problem) for each in findings)
            if not named or not all(each.remedy for each in findings):
                found.append((planted, [(each.where, each.problem) for each in findings]))
        return found

    assert asyncio.run(unnoticed()) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_a_changed_column_is_found_unless_any_value_is_valid(
    backend_name: str, request: pytest.FixtureRequest, part: int
) -> None:
    """Each column of each table is changed in all rows; only the columns that can hold anything may go unnoticed."""
    fortress: Fortress = request.getfixturevalue(f"{backend_name}_fortress")

    async def unnoticed() -> set[str]:
        found = set()
        for column in fortress.columns[part::PARTS]:
            name = f"{column.table}.{column.name}"
            change = CHANGES.get(column.kind)
            if change is None or name in FREE or is_time(column.name):
                continue
            statement = f"UPDATE {column.table} SET {change.format(column=column.name)}"
            if not await is_noticed(fortress, statement):
                found.add(name)
        return found

    assert asyncio.run(unnoticed()) == set()


def test_emptied_tables_are_found_unless_nothing_refers_to_them(
    backend_name: str, request: pytest.FixtureRequest
) -> None:
    """The rows of each table are deleted; only those to which no other row refers may go unnoticed."""
    fortress: Fortress = request.getfixturevalue(f"{backend_name}_fortress")

    async def unnoticed() -> set[str]:
        tables = {column.table for column in fortress.columns} - REMOVABLE
        return {table for table in tables if not await is_noticed(fortress, f"DELETE FROM {table}")}

    assert asyncio.run(unnoticed()) == set()


async def is_noticed(fortress: Fortress, statement: str) -> bool:
    """Return whether the damage is found, in the rows or, by SQLite, in the file; or was refused by the database."""
    try:
        async with fortress.struck(statement) as storage:
            if await storage.maintenance.find_damage():
                return True
            url = getattr(fortress, "url", None)
            return url is not None and bool(await file_problems(url))
    except (asyncpg.PostgresError, apsw.SQLError):
        return True
