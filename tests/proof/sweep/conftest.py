"""Benches for the sweep, and the program that kills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.backends import ReusedDatabase
from tests.proof.sweep.bench import SQLiteBench
from tests.proof.sweep.bench_postgres import PostgresBench
from tests.proof.sweep.ground import steady
from tests.proof.sweep.killer import Killer
from tests.proof.sweep.seam import Seam


@pytest.fixture(scope="session")
def killer() -> Iterator[Killer]:
    """One warm process for the whole run, which forks the processes to be killed."""
    with Killer() as program:
        yield program


@pytest.fixture
def sqlite_bench(tmp_path: Path, migrated_file: Path) -> Iterator[SQLiteBench]:
    """A file that can be reset."""
    with steady():
        yield SQLiteBench(tmp_path, migrated_file)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_postgres_bench(reused_database: ReusedDatabase) -> AsyncIterator[PostgresBench]:
    """A schema that can be reset; one for all cases, so that the server plans its statements once."""
    async with PostgresBench.made(reused_database.url) as bench:
        yield bench
    reused_database.clean()


@pytest_asyncio.fixture(loop_scope="module")
async def postgres_bench(shared_postgres_bench: PostgresBench) -> AsyncIterator[PostgresBench]:
    """An empty schema that can be reset."""
    with steady():
        # The first storage brings the clock of the test with it.
        async with shared_postgres_bench.opened(Seam()):
            await shared_postgres_bench.clear()
        yield shared_postgres_bench
