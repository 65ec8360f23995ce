"""The contract of hints: every listener gets each relevant hint, from any writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from lash.errors import InvalidInput, StorageClosed
from lash.model.causal import ProcessCause
from lash.model.lease import LeaseFence
from lash.model.process.process import Provenance, Success
from lash.model.queue import Boundary, Claim
from lash.stores.hints import Hint, HintListener
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.queue_state import LONG, claimed, consuming, late, leased, queued
from tests.factories.process import NOTE, event, process, process_lease
from tests.factories.session import commit, created, node, owner, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_QUIET_S: Final = 0.1
"""How long without a hint counts as none, in seconds."""
S_TAG: Final = "043a"
"""The first four digits of the SHA-256 of ``s``."""

Wait = asyncio.Task[Hint]
Act = Callable[[Storage, LeaseFence, Claim], Awaitable[object]]


async def _enqueue(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    return await storage.queue.enqueue(late("more"))


async def _cancel(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    return await storage.queue.cancel("s", (await storage.queue.list_pending("s"))[0].batch_id)


async def _abandon(storage: Storage, _fence: LeaseFence, claim: Claim) -> object:
    return await storage.queue.abandon(claim)


async def _bury(storage: Storage, _fence: LeaseFence, claim: Claim) -> object:
    return await storage.queue.bury(claim, reason="r")


async def _requeue(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    return await storage.queue.requeue("s", (await storage.queue.dead())[0].batch.batch_id)


async def _discard(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    return await storage.queue.discard("s", (await storage.queue.dead())[0].batch.batch_id)


async def _commit(storage: Storage, _fence: LeaseFence, claim: Claim) -> object:
    return await storage.session("s").commit(consuming(commit(1, node("b", "a")), claim))


async def _release(storage: Storage, fence: LeaseFence, _claim: Claim) -> object:
    return await storage.leases.release(fence)


WORK: Final[dict[str, Act]] = {
    "enqueue": _enqueue,
    "cancel": _cancel,
    "abandon": _abandon,
    "bury": _bury,
    "requeue": _requeue,
    "discard": _discard,
    "commit": _commit,
    "release": _release,
}
"""Calls that make or end work for a worker, and change no process."""


async def _register(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    return await storage.processes.register(process("new"))


async def _cancel_process(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    return await storage.processes.request_cancel("p")


async def _give_back(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    lease = process_lease(await storage.process_leases.claim("p", owner("ann"), ttl_ms=LONG))
    return await storage.process_leases.release(lease.fence)


async def _park(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    lease = process_lease(await storage.process_leases.claim("p", owner("ann"), ttl_ms=LONG))
    return await storage.process_leases.park(lease.fence, wake_seq=0, until_ms=1)


async def _end_child(storage: Storage, _fence: LeaseFence, _claim: Claim) -> object:
    lease = process_lease(await storage.process_leases.claim("child", owner("ann"), ttl_ms=LONG))
    return await storage.process_leases.complete(lease.fence, Success(value=1))


RUNNABLE: Final[dict[str, Act]] = {
    "register": _register,
    "cancel a process": _cancel_process,
    "release a process": _give_back,
    "park": _park,
    "end a child": _end_child,
}
"""Calls that make a process ready, change when it is, or request something of its run."""
BY_P: Final = Provenance(caused_by=ProcessCause(process_id="p"))


class TestNotify:
    """Laws of hints; listeners for processes alone have further laws."""

    @pytest.mark.parametrize("act", WORK)
    async def test_work_is_a_hint_for_those_who_listen_for_everything(self, harness: Harness, act: str) -> None:
        """A worker gets a hint at once for writes of its own storage."""
        storage, fence, claim = await _busy(harness)
        async with _listening(storage, everything=True) as (_, waiting):
            await WORK[act](storage, fence, claim)
            await asyncio.wait_for(waiting, 60)

    @pytest.mark.parametrize("act", WORK)
    async def test_work_of_other_storages_is_a_hint(self, harness: Harness, act: str) -> None:
        """A worker gets a hint for writes of another storage on the same database."""
        storage, fence, claim = await _busy(harness)
        async with _listening(await harness.open(), everything=True) as (_, waiting):
            await WORK[act](storage, fence, claim)
            await asyncio.wait_for(waiting, 60)

    @pytest.mark.parametrize("act", [*WORK, *RUNNABLE])
    @pytest.mark.parametrize("here", [True, False])
    async def test_whoever_listens_for_work_hears_of_it(self, harness: Harness, act: str, here: bool) -> None:  # noqa: FBT001
        """Queued work, and every reason for a process to run, wakes a listener for work."""
        storage, fence, claim = await _busy(harness)
        await storage.processes.register(process("child", NOTE, provenance=BY_P))
        listening = storage if here else await harness.open()
        async with _listening(listening, work=True) as (_, waiting):
            await (WORK | RUNNABLE)[act](storage, fence, claim)
            await asyncio.wait_for(waiting, 60)

    async def test_a_commit_need_not_wake_workers(self, harness: Harness) -> None:
        """With ``work=False`` a commit is a hint for listeners for everything, and for no listener for work."""
        storage, _, claim = await _busy(harness)
        async with (
            _listening(storage, work=True) as (_, worker),
            _listening(storage, everything=True) as (_, here),
            _listening(await harness.open(), everything=True) as (_, there),
        ):
            await storage.session("s").commit(consuming(commit(1, node("b", "a")), claim), work=False)
            for waiting in (here, there):
                assert S_TAG in ((await asyncio.wait_for(waiting, 60)).changed or {S_TAG})
            await asyncio.sleep(_QUIET_S)
            assert not worker.done()

    async def test_work_is_no_hint_for_those_who_wait_for_processes(self, harness: Harness) -> None:
        """Commits and queued work do not wake listeners for processes."""
        storage, fence, claim = await _busy(harness)
        other = await harness.open()
        with storage.hints.listen() as here, other.hints.listen() as there:
            # Once each has a hint from the other storage, no hint is left that only announces it.
            for listener, writer in ((here, other), (there, storage)):
                hearing = await _quiet(listener)
                await writer.events.append("p", event())
                await asyncio.wait_for(hearing, 60)
            waiting = [await _quiet(listener) for listener in (here, there)]
            for act in ("enqueue", "cancel", "commit", "release"):
                await WORK[act](storage, fence, claim)
            await asyncio.sleep(_QUIET_S)
            assert [each.done() for each in waiting] == [False, False]
            await storage.events.append("p", event())
            await asyncio.wait_for(asyncio.gather(*waiting), 60)

    async def test_a_process_is_a_hint_for_all(self, harness: Harness) -> None:
        """A listener for everything gets hints of processes too, from this storage and others."""
        storage, _, _ = await _busy(harness)
        other = await harness.open()
        async with _listening(storage, everything=True) as (_, here), _listening(other, everything=True) as (_, there):
            await storage.processes.complete("p", Success(value=1))
            await asyncio.wait_for(asyncio.gather(here, there), 60)

    async def test_each_listener_has_its_own_hints(self, harness: Harness) -> None:
        """A listener's hint is not taken from the others; a hint during its work ends its next wait."""
        storage, fence, claim = await _busy(harness)
        with storage.hints.listen(everything=True) as first, storage.hints.listen(everything=True) as second:
            for act in ("enqueue", "commit"):
                waiting = await _quiet(first)
                await WORK[act](storage, fence, claim)
                await asyncio.wait_for(waiting, 60)
            await asyncio.wait_for(second.wait(3_600), 60)
            for listener in (first, second):
                (await _quiet(listener)).cancel()

    async def test_a_hint_of_another_storage_is_kept_for_the_next_wait(self, harness: Harness) -> None:
        """A write of another storage between two waits of a listener ends the second wait."""
        storage, fence, claim = await _busy(harness)
        async with _listening(await harness.open(), everything=True) as (listener, waiting):
            waiting.cancel()
            await asyncio.wait({waiting})
            await _enqueue(storage, fence, claim)
            await asyncio.wait_for(listener.wait(3_600), 60)

    async def test_many_listeners_all_hear(self, harness: Harness) -> None:
        """A hundred listeners are woken by one write of another storage."""
        storage, fence, claim = await _busy(harness)
        other = await harness.open()
        listeners = [other.hints.listen(everything=bool(number % 2)) for number in range(100)]
        waiting = [await each for each in [_quiet(listener) for listener in listeners[:2]]]
        waiting += [asyncio.create_task(listener.wait(3_600)) for listener in listeners[2:]]
        await _enqueue(storage, fence, claim)
        await storage.events.append("p", event())
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        for listener in listeners:
            listener.close()

    async def test_a_hint_may_tell_the_one_session_that_has_work(self, harness: Harness) -> None:
        """A hint names one session or none; two sessions, delayed work or other hints need a poll."""
        storage, _, _ = await _busy(harness)
        await created(storage, "other")
        later = harness.clock.now_ms() + 60_000
        cases = (
            ((late("x"),), {S_TAG, None}),
            ((late("x"), late("y")), {S_TAG, None}),
            ((late("x"), late("y", session_id="other")), {None}),
            ((late("x", available_at_ms=later),), {None}),
        )
        with storage.hints.listen(everything=True) as listener:
            for drafts, expected in cases:
                (await _quiet(listener)).cancel()
                await queued(storage, *drafts)
                assert (await asyncio.wait_for(listener.wait(3_600), 60)).ready in expected
            (await _quiet(listener)).cancel()
            await queued(storage, late("x"))
            listener.hint()
            assert (await asyncio.wait_for(listener.wait(3_600), 60)).ready is None

    async def test_a_listener_can_be_given_a_hint_of_its_own(self, harness: Harness) -> None:
        """A hint to one listener ends its wait and no other."""
        storage, _, _ = await _busy(harness)
        async with (
            _listening(storage, everything=True) as (listener, waiting),
            _listening(storage, everything=True) as (_, other),
        ):
            listener.hint()
            assert (await asyncio.wait_for(waiting, 60)).ready is None
            assert not other.done()

    async def test_a_wait_ends_with_its_time(self, harness: Harness) -> None:
        """Without a hint a wait returns when its time is over, and another one can follow."""
        storage, _, _ = await _busy(harness)
        async with _listening(storage, everything=True) as (listener, waiting):
            waiting.cancel()
            await asyncio.wait({waiting})
            for timeout_s in (0, 0.01):
                await asyncio.wait_for(listener.wait(timeout_s), 60)

    async def test_a_closed_listener_waits_no_more(self, harness: Harness) -> None:
        """Waiting on a closed listener raises, also while it waits; others continue. Closing twice is safe."""
        storage, fence, claim = await _busy(harness)
        async with (
            _listening(storage, everything=True) as (_, waiting),
            # Started last: a late hint about earlier writes must not end its wait before it is closed.
            _listening(storage, everything=True) as (closed, cut_short),
        ):
            closed.close()
            closed.close()
            with pytest.raises(InvalidInput, match="listener was closed"):
                await asyncio.wait_for(cut_short, 60)
            with pytest.raises(InvalidInput, match="listener was closed"):
                await closed.wait(0)
            await _enqueue(storage, fence, claim)
            await asyncio.wait_for(waiting, 60)

    async def test_closing_the_storage_ends_every_wait(self, harness: Harness) -> None:
        """Waits under way and later ones raise StorageClosed."""
        storage, _, _ = await _busy(harness)
        async with _listening(storage, everything=True) as (listener, waiting):
            await storage.close()
            with pytest.raises(StorageClosed):
                await asyncio.wait_for(waiting, 60)
            with pytest.raises(StorageClosed):
                await listener.wait(0)
            with pytest.raises(StorageClosed):
                storage.hints.listen()


@asynccontextmanager
async def _listening(
    storage: Storage, *, everything: bool = False, work: bool = False
) -> AsyncIterator[tuple[HintListener, Wait]]:
    """Return a listener and a wait of it that no hint has ended yet."""
    with storage.hints.listen(everything=everything, work=work) as listener:
        waiting = await _quiet(listener)
        try:
            yield listener, waiting
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})


async def _quiet(listener: HintListener) -> Wait:
    """Return a wait that has begun, after all hints about earlier writes are consumed."""
    while True:
        waiting = asyncio.create_task(listener.wait(3_600))
        done, _ = await asyncio.wait({waiting}, timeout=_QUIET_S)
        if not done:
            return waiting
        await waiting


async def _busy(harness: Harness) -> tuple[Storage, LeaseFence, Claim]:
    """Return a storage with a process ``p``, and with session ``s``: leased, one batch dead, one claimed, one free."""
    storage = await harness.open()
    await started(storage)
    await storage.processes.register(process("p"))
    fence = await leased(storage)
    await queued(storage, late("dead"), late("claimed"), late("free"))
    await storage.queue.bury(await _claim(storage, fence), reason="r")
    return storage, fence, await _claim(storage, fence)


async def _claim(storage: Storage, fence: LeaseFence) -> Claim:
    return claimed(await storage.queue.claim(fence, boundary=Boundary.IDLE, ttl_ms=LONG))
