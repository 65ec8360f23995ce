"""Benches for the sweep, and the program that kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

import lash
from tests.sweep.bench import PostgresBench, SQLiteBench
from tests.sweep.ground import steady
from tests.sweep.killer import Killer


@pytest.fixture(scope="session")
def killer() -> Iterator[Killer]:
    """One warm process for the whole run, which forks those that are killed."""
    with Killer() as program:
        yield program


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty storage in a file, migrated."""
    path = tmp_path_factory.mktemp("sweep") / "empty.db"

    async def make() -> None:
        await (await lash.open(f"sqlite:///{path}")).close()

    asyncio.run(make())
    return path


@pytest.fixture
def sqlite_bench(tmp_path: Path, empty_file: Path) -> Iterator[SQLiteBench]:
    """A file that can be put back."""
    with steady():
        yield SQLiteBench(tmp_path, empty_file)


@pytest_asyncio.fixture
async def postgres_bench(postgres_storage_url: str) -> AsyncIterator[PostgresBench]:
    """A schema that can be put back."""
    with steady():
        async with PostgresBench.made(postgres_storage_url) as bench:
            yield bench
