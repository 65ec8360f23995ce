"""The server's clock decides."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import lash
from lash.model.lease import Busy
from lash.stores.storage import Storage
from lash.testing.clock import START_MS, ManualClock
from tests.factories.session import acquired, commit, owner, started

YEARS_MS = 5 * 365 * 24 * 60 * 60 * 1000


@pytest_asyncio.fixture(loop_scope="session")
async def skewed(postgres_schema_url: str) -> AsyncIterator[Storage]:
    """A storage whose client believes that it is another year."""
    async with await lash.open(postgres_schema_url, clock=ManualClock(START_MS - YEARS_MS)) as storage:
        yield storage


@pytest.mark.parametrize("backend_name", ["postgres"])
async def test_the_servers_clock_decides(skewed: Storage, postgres_schema_url: str, backend_name: str) -> None:
    """A client whose clock is years off claims and respects leases by the server's time."""
    async with await lash.open(postgres_schema_url, clock=ManualClock(START_MS + YEARS_MS)) as ahead:
        session = await started(skewed)
        behind = acquired(await skewed.leases.claim("s", owner("behind"), ttl_ms=60_000))
        assert await ahead.leases.claim("s", owner("ahead"), ttl_ms=60_000) == Busy(holder=behind)
        await session.commit(commit(1, fence=behind.fence, release=behind.fence))
        later = acquired(await ahead.leases.claim("s", owner("ahead"), ttl_ms=60_000))
        head = await session.head()
        assert head is not None
        assert behind.claimed_at_ms <= head.updated_at_ms <= later.claimed_at_ms
        assert abs(behind.claimed_at_ms - START_MS) < YEARS_MS
