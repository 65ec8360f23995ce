"""Calls of stores that repeat themselves after a lost answer: what was done once counts once."""

from __future__ import annotations

import lash
from lash.model.queue import Boundary
from lash.testing.contract.queue_state import claimed, late, leased, queued
from lash.testing.factories import created
from tests.postgres.proxy import Cut, proxy_before


async def test_a_claim_whose_answer_was_lost_is_one_attempt(postgres_storage_url: str) -> None:
    """The repeat finds its own claim; it does not count as a second attempt, of which there are only so many."""
    async with proxy_before(postgres_storage_url) as (proxy, url), await lash.open(url) as storage:
        await created(storage)
        await queued(storage, late("x"))
        fence = await leased(storage)
        proxy.cut_once(fence.token.encode(), Cut.BEFORE_ANSWERING)
        claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=60_000))
        assert [batch.attempts for batch in claim.batches] == [1]
        assert [batch.attempts for batch in await storage.queue.list("s")] == [1]
