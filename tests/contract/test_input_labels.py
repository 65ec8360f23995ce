"""The contract of polls by labels: a worker finds the work of the sessions whose labels it takes."""

from __future__ import annotations

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.lease import LeaseOwner
from lash.model.queue import ClaimedTurn
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG
from tests.contract.test_input_agents import said
from tests.contract.test_worker import beat
from tests.factories.process import process
from tests.factories.session import created

OWNER = LeaseOwner(owner_id="o", incarnation_id="1")
EU = {"region": "eu"}
GPU = {"region": "eu", "gpu": "yes"}


async def labelled(storage: Storage, session_id: str, labels: dict[str, str]) -> None:
    await storage.sessions.create(session_id, labels=labels)


async def found(storage: Storage, labels: dict[str, str] | None, agents: tuple[str, ...] | None = None) -> list[str]:
    """Return the sessions that a poll for these labels finds, without a beat and with one."""
    work = await storage.work.poll(sessions=100, processes=0, owner=OWNER, labels=labels, agents=agents)
    announced = beat("a", owner=OWNER)
    again = await storage.work.poll(
        sessions=100, processes=0, owner=OWNER, labels=labels, agents=agents, beat=announced
    )
    assert set(work.session_ids) == set(again.session_ids)
    return sorted(work.session_ids)


class TestInputLabels:
    """Laws of polls by labels."""

    async def test_a_poll_finds_the_sessions_that_have_all_of_its_labels(self, harness: Harness) -> None:
        """Sessions without one of them are left out; without labels no session is."""
        storage = await harness.open()
        await labelled(storage, "eu", EU)
        await labelled(storage, "gpu", GPU)
        await labelled(storage, "us", {"region": "us", "gpu": "yes"})
        await storage.sessions.create("owned", owner="eu")
        await created(storage, "plain")
        for session_id in ("eu", "gpu", "us", "owned", "plain"):
            await storage.queue.enqueue(said(session_id, "clerk" if session_id == "gpu" else "judge"))
        assert await found(storage, EU) == ["eu", "gpu"]
        assert await found(storage, GPU) == ["gpu"]
        assert await found(storage, {"region": "asia"}) == []
        everything = ["eu", "gpu", "owned", "plain", "us"]
        assert await found(storage, None) == everything
        assert await found(storage, {}) == everything
        assert await found(storage, EU, ("judge",)) == ["eu"]
        assert await found(storage, EU, ("cook",)) == []
        claimed = await storage.queue.claim_turn("gpu", OWNER, ttl_ms=LONG)
        assert isinstance(claimed, ClaimedTurn)
        assert await found(storage, EU) == ["eu"]

    async def test_a_change_of_labels_counts_from_the_next_poll(self, harness: Harness) -> None:
        """Queued input follows the labels of its session."""
        storage = await harness.open()
        await labelled(storage, "s", EU)
        await storage.queue.enqueue(said("s"))
        await storage.session("s").edit(labels={"region": "us"})
        assert await found(storage, EU) == []
        assert await found(storage, {"region": "us"}) == ["s"]

    async def test_every_lane_has_labels(self, harness: Harness) -> None:
        """Urgent, due, parked and newest work of other sessions is left out."""
        storage = await harness.open()
        due_ms = harness.clock.now_ms() + 10
        for region in ("eu", "us"):
            for name in ("urgent", "due", "parked", "newest"):
                await labelled(storage, f"{name}-{region}", {"region": region})
        for region in ("eu", "us"):
            urgent = msgspec.structs.replace(said(f"urgent-{region}"), priority=5)
            await storage.queue.enqueue(urgent)
            await storage.queue.enqueue(said(f"due-{region}", at_ms=due_ms))
            await storage.queue.enqueue(said(f"parked-{region}"))
            turn = await storage.queue.claim_turn(f"parked-{region}", OWNER, ttl_ms=LONG)
            assert isinstance(turn, ClaimedTurn)
            assert turn.wake_seq is not None
            assert await storage.leases.park(
                turn.lease.fence, wake_seq=turn.wake_seq, waiting_for="a moment", until_ms=due_ms
            )
            await storage.queue.enqueue(said(f"newest-{region}"))
        await harness.clock.advance(10)
        work = await storage.work.poll(sessions=4, processes=0, owner=OWNER, labels=EU)
        assert work.lanes.urgent == ("urgent-eu",)
        assert sorted(work.lanes.resumed) == ["due-eu", "parked-eu"]
        assert work.lanes.newest == ("newest-eu",)
        assert {"urgent-eu", "newest-eu"} <= set(work.lanes.waiting) <= {"urgent-eu", "newest-eu", "due-eu"}

    async def test_a_process_has_the_labels_of_its_session(self, harness: Harness) -> None:
        """A process that works for no session, or for one without the labels, is left out."""
        storage = await harness.open()
        await labelled(storage, "s", GPU)
        await labelled(storage, "t", {"region": "us"})
        for process_id, session_id in (("of-s", "s"), ("of-t", "t"), ("of-none", None)):
            await storage.processes.register(process(process_id, wake_session_id=session_id))
        everything = {"of-s", "of-t", "of-none"}
        for labels, expected in ((EU, {"of-s"}), (GPU, {"of-s"}), ({"region": "us"}, {"of-t"}), (None, everything)):
            work = await storage.work.poll(sessions=0, processes=9, owner=OWNER, labels=labels)
            assert set(work.process_ids) == expected

    async def test_labels_are_checked(self, harness: Harness) -> None:
        """What is not a dict of texts is refused."""
        storage = await harness.open()
        for wrong in (["region"], {"": "x"}, {"region": 1}):
            with pytest.raises(InvalidInput, match="label"):
                await storage.work.poll(sessions=1, processes=0, owner=OWNER, labels=wrong)  # type: ignore[arg-type]
