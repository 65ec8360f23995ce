"""The contract of the agent that queued input is for: a worker finds the input of the agents that it takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lash.errors import InvalidInput
from lash.model.lease import LeaseOwner
from lash.model.queue import BatchDraft, ClaimedTurn, TurnInput
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Commit
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, command, consuming, late
from tests.contract.test_worker import beat
from tests.factories.session import commit, created

OWNER = LeaseOwner(owner_id="o", incarnation_id="1")


def said(session_id: str, agent: str | None = None, *, at_ms: int = 0) -> BatchDraft:
    """Return input for a session that names an agent, or none."""
    draft = late("hello", session_id=session_id, available_at_ms=at_ms)
    options = {} if agent is None else {"agent": agent}
    return msgspec.structs.replace(
        draft, payloads=(TurnInput(items=TurnInput.of_text("hello").items, protocol_turn_options=options),)
    )


async def found(storage: Storage, *agents: str, limit: int = 100) -> list[str]:
    """Return the sessions that a poll for these agents finds, without a beat and with one."""
    work = await storage.work.poll(sessions=limit, processes=0, owner=OWNER, agents=agents)
    announced = beat("a", owner=OWNER)
    again = await storage.work.poll(sessions=limit, processes=0, owner=OWNER, agents=agents, beat=announced)
    assert set(work.session_ids) == set(again.session_ids)
    return sorted(work.session_ids)


async def claim(storage: Storage, session_id: str) -> ClaimedTurn:
    turn = await storage.queue.claim_turn(session_id, OWNER, ttl_ms=LONG)
    assert isinstance(turn, ClaimedTurn)
    return turn


async def answer(storage: Storage, session_id: str, agent: str) -> None:
    """Commit the next turn of a session as an agent."""
    turn = await claim(storage, session_id)
    fence = turn.lease.fence
    plain = by_agent(agent, session_id=session_id, fence=fence, release=fence)
    await storage.session(session_id).commit(consuming(plain, turn.claim))


def by_agent(agent: str, *, revision: int = 0, **fields: Any) -> Commit:  # noqa: ANN401 (fields of a commit)
    """Return the commit of a turn of an agent."""
    state = CheckpointDraft(turn_state=TurnState(protocol_turn_options={"agent": agent}))
    return commit(revision, checkpoint=state, **fields)


class TestInputAgents:
    """Laws of the agents of input."""

    async def test_a_poll_finds_the_input_of_its_agents(self, harness: Harness) -> None:
        """Input of other agents, and input for which no agent is known, is left out; without agents nothing is."""
        storage = await harness.open()
        for session_id, agent in (("s1", "clerk"), ("s2", "judge"), ("s3", None), ("s4", "clerk"), ("s5", "cook")):
            await created(storage, session_id)
            await storage.queue.enqueue(said(session_id, agent))
        await storage.queue.enqueue(said("s1", "clerk"))
        assert await found(storage, "clerk") == ["s1", "s4"]
        assert await found(storage, "cook", "unknown", "judge") == ["s2", "s5"]
        assert await found(storage) == []
        everything = await storage.work.poll(sessions=9, processes=0, owner=OWNER)
        assert sorted(everything.session_ids) == ["s1", "s2", "s3", "s4", "s5"]
        await claim(storage, "s1")
        assert await found(storage, "clerk") == ["s4"]
        assert await storage.queue.ready_agents() == ("clerk", "cook", "judge", None)
        assert await storage.queue.ready_agents(limit=2) == ("clerk", "cook")

    async def test_input_that_names_no_agent_is_for_that_of_the_last_turn(self, harness: Harness) -> None:
        """So is input that was queued while the first turn ran, a command, and input with a name that fits no index."""
        storage = await harness.open()
        await created(storage, "s")
        await storage.queue.enqueue(said("s", "clerk"))
        await storage.queue.enqueue(said("s"))
        await answer(storage, "s", "clerk")
        assert await found(storage, "clerk") == ["s"]
        assert await storage.queue.ready_agents() == ("clerk",)
        await created(storage, "t")
        await storage.queue.enqueue(said("t"))
        await answer(storage, "t", "judge")
        assert await found(storage, "judge") == []
        await storage.queue.enqueue(command("c", session_id="t"))
        assert await found(storage, "judge") == ["t"]
        await storage.queue.enqueue(said("t", "clerk"))
        assert await found(storage, "clerk") == ["s", "t"]
        await created(storage, "u")
        await storage.queue.enqueue(said("u", "x" * 10_000))
        assert await storage.queue.ready_agents() == ("clerk", "judge", None)

    async def test_a_hand_off_takes_the_input_that_names_no_agent_along(self, harness: Harness) -> None:
        """If another agent ends a turn, queued input follows it, except what names the agent before."""
        storage = await harness.open()
        for session_id in ("s", "t"):
            await created(storage, session_id)
            await storage.session(session_id).commit(by_agent("clerk", session_id=session_id))
            await storage.queue.enqueue(said(session_id))
            await storage.queue.enqueue(said(session_id, "clerk" if session_id == "t" else None))
            assert await found(storage, "clerk") == [session_id]
            await storage.session(session_id).commit(by_agent("judge", revision=1, session_id=session_id))
            assert await found(storage, "judge") == ["s", "t"][: 1 + (session_id == "t")]
        assert await found(storage, "clerk") == ["t"]

    async def test_the_lanes_of_some_agents(self, harness: Harness) -> None:
        """A poll for some agents has the lanes of a poll for all, without the sessions of others."""
        storage = await harness.open()
        for number, agent in enumerate(("clerk", "judge", "clerk", "judge", "clerk")):
            await created(storage, f"s{number}")
            draft = said(f"s{number}", agent)
            await storage.queue.enqueue(msgspec.structs.replace(draft, priority=5 if number in (2, 3) else 0))
        work = await storage.work.poll(sessions=4, processes=0, owner=OWNER, agents=("clerk",))
        assert work.lanes.urgent == ("s2",)
        assert work.lanes.waiting == ("s0", "s2", "s4")
        assert work.lanes.newest == ("s4",)

    async def test_due_input_is_found(self, harness: Harness) -> None:
        """Delayed input is found by its agent from its moment on."""
        storage = await harness.open()
        due_ms = harness.clock.now_ms() + 1_000
        for session_id, agent in (("s", "clerk"), ("t", "judge")):
            await created(storage, session_id)
            await storage.queue.enqueue(said(session_id, agent, at_ms=due_ms))
        assert await found(storage, "clerk") == []
        assert await storage.queue.ready_agents() == ()
        await harness.clock.advance(1_000)
        assert await found(storage, "clerk") == ["s"]
        assert await storage.queue.ready_agents() == ("clerk", "judge")

    async def test_the_due_input_of_one_agent_does_not_hide_that_of_another(self, harness: Harness) -> None:
        """A poll returns the due sessions of each agent that have waited longest, all in the order of their moments."""
        storage = await harness.open()
        now_ms = harness.clock.now_ms()
        waiting = (
            ("c1", "clerk", 40),
            ("c2", "clerk", 20),
            ("c3", "clerk", 10),
            ("j", "judge", 50),
            ("c4", "clerk", 30),
        )
        for session_id, agent, later_ms in waiting:
            await created(storage, session_id)
            await storage.queue.enqueue(said(session_id, agent, at_ms=now_ms + later_ms))
        await harness.clock.advance(1_000)
        for agents in (("clerk", "judge"), ("judge", "clerk")):
            work = await storage.work.poll(sessions=2, processes=0, owner=OWNER, agents=agents)
            assert work.lanes.resumed == ("c3", "c2", "j")

    async def test_a_parked_turn_is_found_by_its_agent(self, harness: Harness) -> None:
        """Once it is ready it goes to a worker of the agent that began it."""
        storage = await harness.open()
        for session_id, agent in (("s", "clerk"), ("t", "judge")):
            await created(storage, session_id)
            await storage.queue.enqueue(said(session_id, agent))
            turn = await claim(storage, session_id)
            assert turn.wake_seq is not None
            parking = storage.leases.park(
                turn.lease.fence, wake_seq=turn.wake_seq, waiting_for="a moment", until_ms=harness.clock.now_ms() + 10
            )
            assert await parking
        assert await found(storage, "clerk", "judge") == []
        await harness.clock.advance(10)
        assert await found(storage, "clerk") == ["s"]
        assert await found(storage, "judge") == ["t"]

    async def test_a_requeued_letter_keeps_its_agent(self, harness: Harness) -> None:
        """What was buried and is queued again is for the same agent."""
        storage = await harness.open()
        await created(storage, "s")
        await storage.queue.enqueue(said("s", "clerk"))
        turn = await claim(storage, "s")
        await storage.queue.bury(turn.claim, reason="it failed")
        await storage.leases.release(turn.lease.fence)
        await storage.session("s").commit(by_agent("judge"))
        assert await storage.queue.ready_agents() == ()
        assert await storage.queue.requeue("s", turn.claim.batches[0].batch_id) is not None
        await storage.session("s").commit(by_agent("cook", revision=1))
        assert await found(storage, "clerk") == ["s"]

    async def test_agents_are_checked(self, harness: Harness) -> None:
        """Names that are none are refused."""
        storage = await harness.open()
        for wrong in (["clerk", ""], "clerk", [1]):
            with pytest.raises(InvalidInput, match="agents"):
                await storage.work.poll(sessions=1, processes=0, owner=OWNER, agents=wrong)  # type: ignore[arg-type]
