"""Fixtures of the runtime tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.runtime.process_bench import World
from tests.runtime.turn_bench import Bench


@pytest_asyncio.fixture
async def bench(backend_name: str, backend_url: str) -> AsyncIterator[Bench]:
    """Applications on an empty storage, on each backend, with a clock that the test moves."""
    opened = Bench(backend_name, backend_url)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def world(backend_name: str, backend_url: str) -> AsyncIterator[World]:
    """Applications that run processes, on each backend, with counts of their calls."""
    opened = World(backend_name, backend_url)
    yield opened
    await opened.close()
