"""Whatever a row contains, a caller gets a result or a lash error, and soon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.testing.postgres_server import PostgresServer
from tests.backends import scratch_database
from tests.proof.fuzz.kit import fuzzed
from tests.proof.fuzz.rows import Fortress, PostgresFortress, SQLiteFortress, hostile, interrogate

FEWER = settings(fuzzed, max_examples=max(12, fuzzed.max_examples // 4))


@pytest.fixture(scope="module")
def sqlite_fortress(tmp_path_factory: pytest.TempPathFactory) -> Fortress:
    return SQLiteFortress(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def postgres_fortress(postgres_server: PostgresServer) -> Iterator[Fortress]:
    with scratch_database(postgres_server.url) as url:
        yield PostgresFortress(url, "lash")


@pytest.mark.parametrize("backend_name", ["sqlite"], indirect=True)
@fuzzed
@given(data=st.data())
def test_a_hostile_row_in_sqlite_raises_in_our_words(
    data: st.DataObject, sqlite_fortress: Fortress, backend_name: str
) -> None:
    """Checks and foreign keys of the tables are switched off first, as an attacker with the file can do."""
    attack(data, sqlite_fortress)


@pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)
@FEWER
@given(data=st.data())
def test_a_hostile_row_in_postgresql_raises_in_our_words(
    data: st.DataObject, postgres_fortress: Fortress, backend_name: str
) -> None:
    """The tables keep their checks; foreign keys are switched off."""
    attack(data, postgres_fortress)


def attack(data: st.DataObject, fortress: Fortress) -> None:
    """Damage one column and make every call."""
    column = data.draw(st.sampled_from(fortress.columns))
    value = data.draw(hostile(column))
    asyncio.run(interrogate(fortress, column, value))
