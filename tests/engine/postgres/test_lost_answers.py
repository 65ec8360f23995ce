"""Store calls that are retried after a lost reply take effect once."""

from __future__ import annotations

import lash
from lash.model.attachment import AttachmentEntry
from lash.model.queue import Boundary
from tests.contract.queue_state import claimed, late, leased, queued
from tests.engine.postgres.proxy import Cut, proxy_before
from tests.factories.session import created, owner


async def test_a_claim_whose_answer_was_lost_is_one_attempt(postgres_storage_url: str) -> None:
    """The retry finds its own claim; it does not count as a second attempt."""
    async with proxy_before(postgres_storage_url) as (proxy, url), await lash.open(url) as storage:
        await created(storage)
        await queued(storage, late("x"))
        fence = await leased(storage)
        proxy.cut_once(fence.token.encode(), Cut.BEFORE_ANSWERING)
        claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=60_000))
        assert [batch.attempts for batch in claim.batches] == [1]
        assert [batch.attempts for batch in await storage.queue.list("s")] == [1]


async def test_a_turn_whose_begin_was_lost_is_one_attempt(postgres_storage_url: str) -> None:
    """The retry finds its own lease and claim: one fencing number and one attempt are used."""
    async with proxy_before(postgres_storage_url) as (proxy, url), await lash.open(url) as storage:
        await created(storage)
        await queued(storage, late("x"))
        # Only the statement that writes has the name of the holder among its arguments.
        proxy.cut_once(b"the-only-worker", Cut.BEFORE_ANSWERING)
        begun = await storage.queue.claim_turn("s", owner("the-only-worker"), ttl_ms=60_000)
        assert isinstance(begun, lash.model.ClaimedTurn)
        assert (begun.lease.fencing, [batch.attempts for batch in begun.claim.batches]) == (1, [1])
        assert await storage.leases.holder("s") == begun.lease
        assert await storage.queue.list("s") == begun.claim.batches


async def test_a_sweep_goes_on_after_a_lost_answer(postgres_storage_url: str) -> None:
    """A deletion step whose reply was lost recognises its own write, and the bytes are deleted."""

    async def gone(_entry: AttachmentEntry) -> bool:
        return True

    async with proxy_before(postgres_storage_url) as (proxy, url), await lash.open(url) as storage:
        await created(storage)
        ref = await storage.attachments.put("s", b"picture", "image/png")
        await storage.attachments.forget("s", ref.id)
        # Only this statement has the phase to which it moves among its arguments.
        proxy.cut_once(b"\x00\x00\x00\x09condemned", Cut.BEFORE_ANSWERING)
        assert (await storage.attachments.sweep(0, gone)).deleted == (ref.id,)


async def test_a_message_whose_answer_was_lost_has_its_turn(postgres_storage_url: str) -> None:
    """The retry finds the lease and the claim of the first try: one message, one attempt, and a turn that runs."""
    async with proxy_before(postgres_storage_url) as (proxy, url), await lash.open(url) as storage:
        await created(storage)
        proxy.cut_once(b"the-only-worker", Cut.BEFORE_ANSWERING)
        draft = late("x", source_key="k")
        sent, turn = await storage.queue.enqueue_and_claim(draft, owner("the-only-worker"), ttl_ms=60_000)
        assert turn is not None
        assert (turn.lease.fencing, [batch.attempts for batch in turn.claim.batches]) == (1, [1])
        assert await storage.leases.holder("s") == turn.lease
        assert await storage.queue.list("s") == turn.claim.batches
        assert (sent.created, sent.batch) == (True, turn.claim.batches[0])
