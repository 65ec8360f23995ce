"""Fixtures of the tests of the console."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

import lash
from lash.stores.storage import Storage


@pytest_asyncio.fixture
async def storage(backend_url: str) -> AsyncIterator[Storage]:
    """An open, empty storage, on each backend."""
    async with await lash.open(backend_url) as opened:
        yield opened
