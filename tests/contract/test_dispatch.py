"""Assigned work: a piece of work wakes one worker, chosen by the registry."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lash
from lash.model.lease import LeaseOwner
from lash.model.queue import ClaimedTurn
from lash.model.worker import Served
from lash.stores.hints import NO_TAGS, Assigned, Hint, HintListener
from lash.stores.storage import Storage
from tests.contract.queue_state import late
from tests.contract.test_input_agents import said
from tests.contract.test_worker import beat
from tests.factories.process import process
from tests.factories.session import created

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

QUIET_S = 0.15
"""How long a listener must be silent to count as not woken."""

WORKER_TAGS = {"a": "0cc175b9", "b": "92eb5ffe", "c": "4a8a08f0", "d": "8277e091"}


class Member:
    """A registered worker that only listens."""

    def __init__(self, name: str, storage: Storage, listener: HintListener) -> None:
        self.name = name
        self.storage = storage
        self.listener = listener

    async def beat(self, **changes: Any) -> None:  # noqa: ANN401 (fields of a beat)
        announced = beat(self.name, **({"beat_ms": 60_000, "channel": self.storage.hints.channel} | changes))
        work = await self.storage.work.poll(sessions=0, processes=0, owner=announced.owner, beat=announced)
        assert work.fleet is not None
        self.storage.hints.serve(self.name, duty=work.fleet.rank in (0, 1))

    async def woken(self) -> Hint:
        """Return what the worker gets within a moment."""
        return await self.listener.wait(QUIET_S)


@asynccontextmanager
async def fleet(url: str, names: Sequence[str]) -> AsyncIterator[dict[str, Member]]:
    """Yield registered, listening workers by name."""
    members: dict[str, Member] = {}
    storages = [await lash.open(url) for _ in names]
    try:
        for name, storage in zip(names, storages, strict=True):
            member = members[name] = Member(name, storage, storage.hints.listen(work=True))
            await member.beat()
            # The first wait connects; the second one ends with the hint that this gives.
            while storage.hints.channel is None:
                await member.listener.wait(5)
            await member.beat()
        for member in members.values():
            while await member.woken() != Hint():
                pass
        yield members
    finally:
        for storage in storages:
            await storage.close()


async def woken(members: dict[str, Member], *, patience_s: float = 10) -> dict[str, Hint]:
    """Return what each worker gets: wait until one of them gets anything, and a moment longer."""
    waits = {name: asyncio.create_task(member.listener.wait(patience_s)) for name, member in members.items()}
    await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait(waits.values(), timeout=QUIET_S)
    for wait in waits.values():
        wait.cancel()
    await asyncio.wait(waits.values())
    return {name: Hint() if wait.cancelled() else wait.result() for name, wait in waits.items()}


def works(hints: dict[str, Hint]) -> dict[str, Assigned]:
    """Return what was assigned, by worker."""
    return {name: hint.assigned for name, hint in hints.items() if hint.assigned not in (None, Assigned())}


async def assigned(members: dict[str, Member]) -> dict[str, Assigned]:
    """Return what the workers are assigned, once one of them is, without the workers that get nothing."""
    async with asyncio.timeout(60):
        while not (found := works(await woken(members))):
            pass
    return found


async def unassigned(members: dict[str, Member], caller: Storage) -> bool:
    """Return whether no worker is assigned anything until a later notification has arrived."""
    found = works(await woken(members))
    caller.hints.notify()
    async with asyncio.timeout(60):
        while True:
            hints = await woken(members)
            found |= works(hints)
            if hints["a"] != Hint() and hints["a"].assigned is None:
                return not found


async def test_a_message_wakes_one_worker(backend_url: str) -> None:
    """Of four workers one is assigned the session, always the same, and only the duty workers see that."""
    async with fleet(backend_url, "abcd") as members, await lash.open(backend_url) as caller:
        await created(caller, "s")
        takers = []
        for number in range(3):
            await caller.queue.enqueue(late(f"m{number}"))
            seen: dict[str, Hint] = {}
            while not works(seen) or not all(duty in seen and seen[duty].dispatched for duty in "ab"):
                for name, hint in (await woken(members)).items():
                    if hint != Hint():
                        seen[name] = hint.merged(seen.get(name, hint))
            (taker,) = works(seen)
            takers.append(taker)
            # The first four hexadecimal digits of SHA-256 of "s", and eight of MD5 of the worker's id.
            assert {entry for duty in "ab" for entry in seen[duty].dispatched} == {f"s043a:{WORKER_TAGS[taker]}"}
            # Workers without a duty get nothing at all.
            assert set(seen) == {taker, "a", "b"}
        # Of md5("as"), md5("bs"), md5("cs") and md5("ds") the last is the least.
        assert takers == ["d"] * 3


async def test_full_late_and_draining_workers_get_nothing(backend_url: str) -> None:
    """Work goes to an active worker with a free slot; if there is none, no worker is woken."""
    url, session_id = backend_url, "s4"
    # Any of the others would come before the only one that may get it.
    assert max("abcd", key=lambda name: hashlib.md5(f"{name}{session_id}".encode()).hexdigest()) == "d"
    async with fleet(url, "abcd") as members:
        await created(members["a"].storage, session_id)
        await members["a"].beat(free_sessions=0)
        await members["b"].storage.workers.drain("b")
        await members["c"].beat(beat_ms=1)
        await asyncio.sleep(0.01)
        async with await lash.open(url) as caller:
            await caller.queue.enqueue(late("m1", session_id=session_id))
            assert await assigned(members) == {"d": Assigned(frozenset({session_id}))}
        await members["d"].beat(free_sessions=0)
        # A sender may know the registry of a second ago.
        async with await lash.open(url) as caller:
            await caller.queue.enqueue(late("m2", session_id=session_id))
            assert await unassigned(members, caller)
            await caller.processes.register(process("p"))
            taken = await assigned(members)
        assert list(taken.values()) == [Assigned(NO_TAGS, frozenset({"p"}))]
        assert set(taken) <= {"a", "d"}


async def test_a_worker_gets_the_input_of_the_agents_that_it_takes(backend_url: str) -> None:
    """Input goes to a worker that takes its agent; input without an agent goes to workers that take all."""
    async with fleet(backend_url, "abc") as members:
        for name, agents, free in (("a", ("judge",), 4), ("b", ("clerk", "judge"), 0), ("c", ("clerk",), 4)):
            # What a worker takes is registered once.
            await members[name].storage.workers.leave(name)
            await members[name].beat(served=Served(agents=agents), free_sessions=free)
        async with await lash.open(backend_url) as caller:
            for session_id, agent in (("s", "clerk"), ("t", "cook"), ("u", None)):
                await created(caller, session_id)
                await caller.queue.enqueue(said(session_id, agent))
            assert await assigned(members) == {"c": Assigned(frozenset({"s"}))}


async def test_a_worker_gets_the_work_of_the_labels_that_it_takes(backend_url: str) -> None:
    """Input and processes go to a worker that takes the labels of the session; unlabelled work goes to no such one."""
    async with fleet(backend_url, "abc") as members:
        for name, labels, free in (("a", {"gpu": "no"}, 4), ("b", {"gpu": "yes"}, 0), ("c", {"gpu": "yes"}, 4)):
            await members[name].storage.workers.leave(name)
            await members[name].beat(served=Served(labels=labels), free_sessions=free, free_processes=free)
        async with await lash.open(backend_url) as caller:
            for session_id, labels in (("s", {"gpu": "yes", "region": "eu"}), ("t", {"gpu": "maybe"}), ("u", {})):
                await caller.sessions.create(session_id, labels=labels)
                await caller.queue.enqueue(said(session_id))
                await caller.processes.register(process(f"p-{session_id}", wake_session_id=session_id))
            await caller.processes.register(process("p"))
            found: set[str] = set()
            while found != {"s", "p-s"}:
                taken = await assigned(members)
                assert set(taken) == {"c"}
                found |= taken["c"].sessions | taken["c"].processes
                assert found <= {"s", "p-s"}


async def test_the_holder_gets_what_concerns_its_session(backend_url: str) -> None:
    """Input for a leased session goes to the worker that holds the lease, even if it is full."""
    async with fleet(backend_url, "abc") as members, await lash.open(backend_url) as caller:
        await created(caller, "s")
        holder = beat("b").owner
        await caller.leases.claim("s", holder, ttl_ms=60_000)
        await members["b"].beat(free_sessions=0)
        await caller.queue.enqueue(late("m1"))
        assert await assigned(members) == {"b": Assigned(frozenset({"s"}))}
        stranger = LeaseOwner(owner_id="x", incarnation_id="x")
        await created(caller, "t")
        await caller.leases.claim("t", stranger, ttl_ms=60_000)
        await caller.queue.enqueue(late("m2", session_id="t"))
        assert await unassigned(members, caller)


async def test_the_holder_is_not_woken_for_a_message_that_it_has_claimed(backend_url: str) -> None:
    """A notification that comes after the claim assigns nothing; one about a further message goes to the holder."""
    async with fleet(backend_url, "abc") as members, await lash.open(backend_url) as caller:
        await created(caller, "s")
        await caller.queue.enqueue(late("m1"))
        await assigned(members)
        claimed = await members["b"].storage.queue.claim_turn("s", beat("b").owner, ttl_ms=60_000)
        assert isinstance(claimed, ClaimedTurn)
        caller.hints.notify(process=False, session_id="s")
        assert await unassigned(members, caller)
        await caller.queue.enqueue(late("m2"))
        assert await assigned(members) == {"b": Assigned(frozenset({"s"}))}


async def test_a_worker_keeps_the_work_of_its_own_storage(backend_url: str) -> None:
    """A worker that has a free slot gets what its own storage sends, by a local hint, and no other is woken."""
    async with fleet(backend_url, "abc") as members:
        own = members["c"].storage
        await created(own, "s")
        await own.queue.enqueue(late("m1"))
        hints = await woken(members)
        assert hints["c"].ready is not None
        assert works(hints) == {}


async def test_work_that_was_not_taken_goes_to_another(backend_url: str) -> None:
    """A suspected worker is assigned nothing until its next beat, for which it is woken; work is passed on past it."""
    url = backend_url
    async with fleet(url, "abc") as members, await lash.open(url) as caller:
        await created(caller, "s")
        await caller.queue.enqueue(late("m1"))
        entries: frozenset[str] = NO_TAGS
        while not entries:
            entries = (await members["a"].listener.wait(10)).dispatched
        (entry,) = entries
        worker_tag = entry.partition(":")[2]
        (suspect,) = [name for name in "abc" if hashlib.md5(name.encode()).hexdigest()[:8] == worker_tag]
        other = members["a" if suspect != "a" else "b"]
        await other.storage.hints.suspect([worker_tag])
        while not (await members[suspect].listener.wait(10)).beat:
            pass
        await other.storage.hints.pass_on(["s"], [])
        taken = await assigned(members)
        assert list(taken.values()) == [Assigned(frozenset({"s"}))]
        assert not {suspect, other.name} & set(taken)


async def test_unnamed_work_is_left_to_the_duty_workers(backend_url: str) -> None:
    """A hint that names no work lets the duty workers poll, and no other worker."""
    async with fleet(backend_url, "abcd") as members, await lash.open(backend_url) as caller:
        caller.hints.notify()
        hints = await woken(members)
        assert [hint != Hint() and hint.assigned is None for hint in hints.values()] == [True, True, False, False]


async def test_a_dead_worker_is_passed_over(backend_url: str, backend_name: str) -> None:
    """Work goes to the next worker at once if the kernel knows that the chosen one has ended."""
    if backend_name == "postgres":
        pytest.skip("a server does not know which of its clients listen for a channel")
    async with fleet(backend_url, "ab") as members, await lash.open(backend_url) as caller:
        await members["b"].beat(channel="0" * 16)
        for number in range(8):
            await created(caller, f"s{number}")
            await caller.queue.enqueue(late("m", session_id=f"s{number}"))
        found: set[str] = set()
        async with asyncio.timeout(60):
            while len(found) < 8:
                hint = await members["a"].listener.wait(5)
                assert hint.assigned is not None
                found |= hint.assigned.sessions
