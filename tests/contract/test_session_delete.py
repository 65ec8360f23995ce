"""The contract of deleting a session that has something of every noun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

import pytest

from lash.errors import SessionDeleted, WaitUnknown
from lash.model.effect import TurnScope
from lash.model.lease import Lease
from lash.model.process.event import WakeState
from lash.model.process.process import ProcessStatus
from lash.model.queue import Boundary
from lash.model.trigger.schedule import ScheduleDraft
from lash.model.trigger.trigger import TriggerFilter
from lash.model.wait import CustomIdentity, UnknownOrRevoked, WaitKey
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import claimed, late, queued
from tests.factories.effect import effect
from tests.factories.process import NEWS, granted, news, process, stored
from tests.factories.session import acquired, chain, commit, created, draft, owner, spent, started
from tests.factories.trigger import by_session, pressed, trigger
from tests.factories.wait import YES

TTL: Final = 60_000
_ROUNDS: Final = 10


async def inhabited(storage: Storage, session_id: str) -> tuple[Lease, WaitKey]:
    """Give a session something of every noun, and return its lease and the key of a wait."""
    session = await created(storage, session_id)
    await session.commit(
        commit(0, *chain("a", "b"), session_id=session_id, checkpoint=draft(1, {"k": b"state"}), usage=(spent(5),))
    )
    await storage.attachments.put(session_id, session_id.encode(), "text/plain")
    await storage.records.put("notes", "k", session_id, session_id=session_id)
    name = f"process of {session_id}"
    await storage.processes.register(process(name, NEWS, wake_session_id=session_id))
    await storage.grants.grant(granted(session_id, name))
    await storage.events.append(name, news(key="wake"))
    subscription = trigger("subscription", owner=by_session(session_id), wake_session_id=session_id)
    await storage.triggers.register(subscription)
    await storage.occurrences.emit(pressed(session_id))
    await storage.schedules.register(ScheduleDraft(owner=by_session(session_id), key="schedule", cron="* * * * *"))
    lease = acquired(await storage.leases.claim(session_id, owner("worker"), ttl_ms=TTL))
    await queued(storage, late("dead", session_id=session_id), late("claimed", session_id=session_id))
    turn = effect("step", scope=TurnScope(session_id=session_id, turn_id="t"))
    await storage.effects.record(lease.fence, turn, {"answer": 42})
    await storage.effects.claim(
        effect("begun", scope=TurnScope(session_id=session_id, turn_id="t")), owner("worker"), ttl_ms=TTL
    )
    key = await storage.waits.key(TurnScope(session_id=session_id, turn_id="t"), CustomIdentity(key="k"))
    await storage.waits.open(key, timeout_ms=TTL)
    first = claimed(await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL, max_batches=1))
    await storage.queue.bury(first, reason="it failed")
    await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=TTL)
    return lease, key


class TestSessionDelete:
    """What a deletion removes, in one transaction, and what it leaves."""

    async def test_everything_of_a_session_goes_with_it(self, harness: Harness) -> None:
        """Graph, queue, claims, dead letters, effects, waits, records, subscriptions and schedules are all deleted."""
        storage = await harness.open()
        lease, key = await inhabited(storage, "s")
        assert await storage.sessions.delete("s")
        refused: list[Awaitable[object]] = [
            storage.session("s").load(),
            storage.queue.list("s"),
            storage.queue.dead(session_id="s"),
            storage.leases.renew(lease.fence, ttl_ms=TTL),
            storage.effects.claim(effect("later"), owner("worker"), ttl_ms=TTL),
            storage.effects.list(TurnScope(session_id="s", turn_id="t")),
            storage.records.get("notes", "k", session_id="s"),
        ]
        for call in refused:
            with pytest.raises(SessionDeleted):
                await call
        assert await storage.waits.resolve(key, YES) == UnknownOrRevoked()
        with pytest.raises(WaitUnknown):
            await storage.waits.open(key)
        assert await storage.waits.pending() == ()
        assert (await storage.triggers.list(TriggerFilter(session_id="s"))).subscriptions == ()
        assert (await storage.schedules.list(by_session("s"))).schedules == ()
        assert await storage.schedules.next_fire_at_ms() is None
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean

    async def test_processes_outlive_the_session_that_started_them(self, harness: Harness) -> None:
        """Processes run on and wake no session; their queued wakes become undeliverable."""
        storage = await harness.open()
        await inhabited(storage, "s")
        await storage.sessions.delete("s")
        record = await stored(storage, "process of s")
        assert (record.status, record.wake_session_id) == (ProcessStatus.RUNNING, None)
        assert await storage.grants.of_process("process of s") == ()
        lost = await storage.events.undeliverable_wakes()
        assert [(each.process_id, each.state) for each in lost] == [("process of s", WakeState.UNDELIVERABLE)]

    async def test_another_session_keeps_everything(self, harness: Harness) -> None:
        """A deletion touches no row of another session, which works as before."""
        storage = await harness.open()
        await inhabited(storage, "s")
        lease, key = await inhabited(storage, "other")
        await storage.sessions.delete("s")
        assert len(await storage.queue.dead(session_id="other")) == 1
        # Two wakes, of its process and of the triggers that fired, and the claimed message.
        assert len(await storage.queue.list("other")) == 2
        assert len(await storage.effects.list(TurnScope(session_id="other", turn_id="t"))) == 2
        assert len((await storage.triggers.list(TriggerFilter(session_id="other"))).subscriptions) == 1
        assert len((await storage.schedules.list(by_session("other"))).schedules) == 1
        await storage.leases.renew(lease.fence, ttl_ms=TTL)
        await storage.waits.resolve(key, YES)
        record = await storage.waits.get(key)
        assert record is not None
        assert record.resolution == YES

    async def test_a_new_session_of_the_same_id_starts_empty(self, harness: Harness) -> None:
        """Nothing of the old session comes back, and its keys stay invalid."""
        storage = await harness.open()
        _, key = await inhabited(storage, "s")
        await storage.sessions.delete("s")
        await created(storage, "s")
        assert await storage.queue.list("s") == ()
        assert await storage.queue.dead(session_id="s") == ()
        assert await storage.effects.list(TurnScope(session_id="s", turn_id="t")) == ()
        assert await storage.waits.resolve(key, YES) == UnknownOrRevoked()
        assert (await storage.triggers.list(TriggerFilter(session_id="s"))).subscriptions == ()

    async def test_many_sessions_with_and_without_ties(self, harness: Harness) -> None:
        """Each of many is deleted whole, whatever it has, and what outlives it is detached."""
        storage = await harness.open()
        plain = [f"plain {number}" for number in range(20)]
        for name in plain:
            await started(storage, name)
        await inhabited(storage, "s")
        await inhabited(storage, "other")
        names = (*plain[:18], "s", "unknown", *plain[18:])
        assert await storage.sessions.delete_many(names) == tuple(each for each in names if each != "unknown")
        assert await storage.sessions.ids() == ("other",)
        assert (await stored(storage, "process of s")).wake_session_id is None
        assert (await stored(storage, "process of other")).wake_session_id == "other"
        assert [each.process_id for each in await storage.events.undeliverable_wakes()] == ["process of s"]
        assert len((await storage.triggers.list()).subscriptions) == 1
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean

    async def test_a_message_beside_a_deletion_is_never_lost_unseen(self, harness: Harness) -> None:
        """It goes with the session, in whose queue it was, or is refused; nothing of it stays."""
        storage, other = await harness.open(), await harness.open()
        for number in range(_ROUNDS):
            name = f"s{number}"
            await started(storage, name)
            sent, deleted = await asyncio.gather(
                queued(other, late("hello", session_id=name)), storage.sessions.delete(name), return_exceptions=True
            )
            assert deleted is True
            assert not isinstance(sent, BaseException) or type(sent) is SessionDeleted
            await created(storage, name)
            assert await storage.queue.list(name) == ()
        assert (await storage.maintenance.collect_garbage(dry_run=True)).is_clean

    async def test_an_event_beside_a_deletion_leaves_no_queued_wake(self, harness: Harness) -> None:
        """Its wake is undeliverable, whether the event came before or after the deletion."""
        storage, other = await harness.open(), await harness.open()
        for number in range(_ROUNDS):
            name = f"s{number}"
            await started(storage, name)
            await storage.processes.register(process(f"p{number}", NEWS))
            _, deleted = await asyncio.gather(
                other.events.append(f"p{number}", news(wake=name)), storage.sessions.delete(name)
            )
            assert deleted is True
        lost = await storage.events.undeliverable_wakes()
        assert {each.process_id for each in lost} == {f"p{number}" for number in range(_ROUNDS)}
