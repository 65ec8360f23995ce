"""PostgreSQL plans a claim from one statement and writes it with another; a change in between is detected."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

import lash
from tests.contract.queue_state import LONG, claimed, consuming, joining, leased, queued, texts
from tests.factories.session import commit, draft, node, owner, spent, started
from tests.raw import raw

pytestmark = pytest.mark.parametrize("backend_name", ["postgres"], indirect=True)

LEASE_LOST: Final = {
    "released": "UPDATE lash_session_leases SET token = NULL, owner_id = NULL, incarnation_id = NULL, process = NULL",
    "expired": "UPDATE lash_session_leases SET expires_at_ms = 1",
    "taken over": "UPDATE lash_session_leases SET token = 'rival', owner_id = 'rival', fencing = fencing + 1",
    "acquired again": "UPDATE lash_session_leases SET token = 'again', fencing = fencing + 1",
}
"""Changes of a lease, as a rival writes them."""

_FIRST = "WHERE seq = (SELECT min(seq) FROM lash_batches)"
BATCH_LOST: Final = {
    "cancelled": f"DELETE FROM lash_batches {_FIRST}",
    "claimed": "UPDATE lash_batches SET claim_id = 'rival', claim_token = 'rival', claim_expires_at_ms = 9e15::bigint, "
    f"claim_lease_fencing = (SELECT fencing FROM lash_session_leases) {_FIRST}",
}
"""Changes of the first batch."""


class Interruption:
    """Runs one statement on another connection once, right before the storage runs a given one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before: dict[str, str] = {}

    def before(self, name: str, statement: str) -> None:
        self._before[name] = statement

    @property
    def is_over(self) -> bool:
        return not self._before

    def __call__(self, name: str) -> None:
        statement = self._before.pop(name, None)
        if statement is not None:
            thread = threading.Thread(target=lambda: asyncio.run(raw(self._url, statement)))
            thread.start()
            thread.join()


@asynccontextmanager
async def _prepared(url: str) -> AsyncIterator[tuple[lash.Storage, lash.model.LeaseFence, Interruption]]:
    """Open a storage with joining inputs ``a``, ``b`` and ``c`` in the queue of session ``s``, and its lease."""
    interruption = Interruption(url)
    async with await lash.open(url, on_statement=interruption) as storage:
        await started(storage)
        await queued(storage, *(joining(text) for text in "abc"))
        yield storage, await leased(storage), interruption
        assert interruption.is_over, "nothing was interrupted"


@pytest.mark.parametrize("what", LEASE_LOST)
async def test_a_lease_lost_while_a_claim_is_made(backend_url: str, what: str) -> None:
    """The claim is refused, and no batch is claimed."""
    async with _prepared(backend_url) as (storage, fence, interruption):
        interruption.before("queue_stamp", LEASE_LOST[what])
        with pytest.raises(lash.LeaseLost):
            await storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=LONG)
        assert [batch.attempts for batch in await storage.queue.list_pending("s")] == [0, 0, 0]


@pytest.mark.parametrize("what", BATCH_LOST)
async def test_a_batch_lost_while_a_claim_is_made(backend_url: str, what: str) -> None:
    """The claim is planned again without the lost batch."""
    async with _prepared(backend_url) as (storage, fence, interruption):
        interruption.before("queue_stamp", BATCH_LOST[what])
        claim = claimed(await storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=LONG))
        assert texts(claim.batches) == ["b", "c"]
        assert [batch.attempts for batch in claim.batches] == [1, 1]


RIVALS: Final = {
    "lease": "UPDATE lash_session_leases SET token = 'rival', owner_id = 'rival', incarnation_id = 'i', "
    "fencing = fencing + 1, expires_at_ms = 9e15::bigint",
    "lease-freed-again": "UPDATE lash_session_leases SET fencing = fencing + 1",
    "batch": BATCH_LOST["cancelled"],
}
"""What a rival may take while a turn is claimed."""


@pytest.mark.parametrize("what", RIVALS)
async def test_a_rival_while_a_turn_is_begun(backend_url: str, what: str) -> None:
    """The turn is planned again: Busy under the rival's lease, or with the next number and the remaining work."""
    async with _prepared(backend_url) as (storage, fence, interruption):
        await storage.leases.release(fence)
        interruption.before("queue_claim_turn", RIVALS[what])
        begun = await storage.queue.claim_turn("s", owner("w"), ttl_ms=LONG)
        attempts = [batch.attempts for batch in await storage.queue.list("s")]
        if what == "lease":
            assert isinstance(begun, lash.model.Busy)
            assert (begun.holder.token, attempts) == ("rival", [0, 0, 0])
            return
        assert isinstance(begun, lash.model.ClaimedTurn)
        assert begun.lease.fencing == fence.fencing + (2 if "lease" in what else 1)
        assert await storage.leases.holder("s") == begun.lease
        left = ["a", "b", "c"] if "lease" in what else ["b", "c"]
        assert (texts(begun.claim.batches), attempts) == (left, [1] * len(left))


COMMITS: Final = {
    "commit_alone_leased": commit(1, node("n", "a")),
    "commit_apply": commit(1, node("n", "a"), checkpoint=draft(1, {"state": b"state"})),
    "commit_turns": commit(1, node("n", "a"), usage=(spent(1), spent(2))),
}
"""Commits that are written by different statements."""


@pytest.mark.parametrize("statement", COMMITS)
@pytest.mark.parametrize("what", LEASE_LOST)
async def test_a_lease_lost_while_a_commit_is_made(backend_url: str, what: str, statement: str) -> None:
    """The commit is refused whole: no head, no node."""
    async with _prepared(backend_url) as (storage, fence, interruption):
        interruption.before(statement, LEASE_LOST[what])
        with pytest.raises(lash.LeaseLost):
            await storage.session("s").commit(msgspec.structs.replace(COMMITS[statement], fence=fence))
        head = await storage.session("s").head()
        assert head is not None
        assert (head.revision, head.leaf_node_id) == (1, "a")


@pytest.mark.parametrize("statement", COMMITS)
@pytest.mark.parametrize("what", BATCH_LOST)
async def test_a_batch_lost_while_a_commit_is_made(backend_url: str, what: str, statement: str) -> None:
    """The commit is refused whole: no head, no node; the rest of the claim stays."""
    async with _prepared(backend_url) as (storage, fence, interruption):
        claim = claimed(await storage.queue.claim(fence, boundary=lash.model.Boundary.IDLE, ttl_ms=LONG))
        interruption.before(statement, BATCH_LOST[what])
        with pytest.raises(lash.errors.ClaimLost):
            await storage.session("s").commit(consuming(COMMITS[statement], claim))
        head = await storage.session("s").head()
        assert head is not None
        assert (head.revision, head.leaf_node_id) == (1, "a")
        assert texts(await storage.queue.list("s"))[-2:] == ["b", "c"]
