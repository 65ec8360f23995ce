"""The contract of lists of the queued and dead input of all sessions."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.model.queue import Boundary, QueuedBatch, QueuedState
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, TTL, claimed, late, leased, queued, texts
from tests.factories.session import created


def shown(batches: tuple[QueuedBatch, ...]) -> list[tuple[str, str, str]]:
    """Return the session, the text and the state of each batch."""
    return [
        (each.batch.session_id, text, each.state.value)
        for each, text in zip(batches, texts(each.batch for each in batches), strict=True)
    ]


async def filled(storage: Storage) -> None:
    """Queue five batches in three sessions: two are delayed, and one of them becomes due; one is claimed."""
    for name in ("ann-1", "ann-2", "bob"):
        await created(storage, name)
    await queued(storage, late("1", session_id="bob"), late("2", session_id="ann-2"))
    await queued(storage, late("3", session_id="ann-1", available_at_ms=2**50))
    await queued(storage, late("4", session_id="bob"), late("5", session_id="ann-1", available_at_ms=1))
    fence = await leased(storage, session_id="bob")
    claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=1))


ALL = [
    ("bob", "1", "claimed"),
    ("ann-2", "2", "ready"),
    ("ann-1", "3", "delayed"),
    ("bob", "4", "ready"),
    ("ann-1", "5", "ready"),
]


class TestQueued:
    """Laws of lists of queued input."""

    async def test_pages_cover_all_sessions_in_order(self, harness: Harness) -> None:
        """Batches come in the order of their queueing, whatever their session; each page is one statement."""
        names: list[str] = []
        storage = await harness.open(on_statement=names.append)
        await filled(storage)
        assert shown(await storage.queue.list_all()) == ALL
        names.clear()
        found: list[QueuedBatch] = []
        while page := await storage.queue.list_all(limit=2, after=found[-1].batch.seq if found else None):
            found += page
        assert shown(tuple(found)) == ALL
        assert [name for name in names if name.startswith("queue")] == ["queue_all"] * 4
        assert [each.batch for each in found if each.batch.session_id == "bob"] == [*await storage.queue.list("bob")]

    async def test_filters_choose_by_session_and_state(self, harness: Harness) -> None:
        """A prefix and a state choose the batches that both allow, in the same order."""
        storage = await harness.open()
        await filled(storage)
        list_all = storage.queue.list_all
        assert shown(await list_all(prefix="ann-")) == [ALL[1], ALL[2], ALL[4]]
        assert shown(await list_all(prefix="")) == ALL
        assert shown(await list_all(state=QueuedState.READY)) == [ALL[1], ALL[3], ALL[4]]
        assert shown(await list_all(state=QueuedState.DELAYED)) == [ALL[2]]
        assert shown(await list_all(state=QueuedState.CLAIMED)) == [ALL[0]]
        assert shown(await list_all(prefix="bob", state=QueuedState.CLAIMED)) == [ALL[0]]
        assert shown(await list_all(prefix="ann-", state=QueuedState.CLAIMED)) == []
        (first,) = await list_all(prefix="ann-", limit=1)
        assert shown(await list_all(prefix="ann-", limit=1, after=first.batch.seq)) == [ALL[2]]

    async def test_a_state_is_that_of_the_moment(self, harness: Harness) -> None:
        """A claim that expired, and one whose lease was released, no longer hold their batches."""
        storage = await harness.open()
        await created(storage)
        (batch,) = await queued(storage, late("1"))
        fence = await leased(storage, ttl_ms=LONG)
        claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
        assert [each.state for each in await storage.queue.list_all()] == [QueuedState.CLAIMED]
        await harness.clock.advance(TTL)
        assert [each.state for each in await storage.queue.list_all()] == [QueuedState.READY]
        assert await storage.queue.list_all(state=QueuedState.CLAIMED) == ()
        claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=LONG))
        await storage.leases.release(fence)
        (found,) = await storage.queue.list_all()
        assert (found.batch.batch_id, found.state) == (batch.batch_id, QueuedState.READY)

    async def test_bad_arguments_are_refused(self, harness: Harness) -> None:
        """A state that is none, a negative position and a limit beyond a page raise InvalidInput."""
        storage = await harness.open()
        with pytest.raises(InvalidInput, match="expected a QueuedState, got 'ready'"):
            await storage.queue.list_all(state="ready")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="after"):
            await storage.queue.list_all(after=-1)
        with pytest.raises(InvalidInput, match="limit"):
            await storage.queue.list_all(limit=1_001)
        with pytest.raises(InvalidInput, match="prefix"):
            await storage.queue.list_all(prefix=1)  # type: ignore[arg-type]


class TestDead:
    """Laws of lists of dead letters by the beginning of the session's id."""

    async def test_a_prefix_chooses_sessions(self, harness: Harness) -> None:
        """Only the letters of these sessions are listed, in the order in which they died, in pages."""
        storage = await harness.open()
        for name in ("ann-1", "bob", "ann-2"):
            await created(storage, name)
            await queued(storage, late(name, session_id=name))
            fence = await leased(storage, session_id=name)
            claim = claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=TTL))
            await storage.queue.bury(claim, reason="no")
        letters = await storage.queue.dead(prefix="ann-")
        assert [letter.batch.session_id for letter in letters] == ["ann-1", "ann-2"]
        assert await storage.queue.dead(prefix="ann-", after=letters[0].position, limit=1) == letters[1:]
        assert len(await storage.queue.dead(prefix="")) == 3
        assert await storage.queue.dead(prefix="c") == ()
        with pytest.raises(InvalidInput, match="expected session_id or prefix, got both"):
            await storage.queue.dead(session_id="bob", prefix="b")
