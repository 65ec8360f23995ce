"""The contract of the life of waits and their waiters: woken, timed out, revoked, deleted, closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lash.errors import InvalidInput, StorageClosed, WaitTimedOut, WaitUnknown
from lash.model.wait import (
    Accepted,
    AlreadyResolved,
    Cancelled,
    Resolved,
    TimedOut,
    UnknownOrRevoked,
)
from lash.testing.harness import Harness
from tests.factories.process import DONE, registered
from tests.factories.session import created
from tests.factories.wait import (
    CUSTOM,
    OPERATION,
    PROCESS,
    TURN,
    TURNS,
    YES,
    key_of,
    parked,
    placed,
    soon,
    waiting,
)


class TestWaiting:
    """Laws of waiters."""

    async def test_everybody_who_waits_gets_the_resolution(self, harness: Harness) -> None:
        """Many waiters over two storages get the one resolution, which a third party gave by the key's text."""
        storage, other = await harness.open(), await harness.open()
        await placed(storage)
        key = await key_of(storage)
        tasks = [waiting(each, key) for each in (storage, other) for _ in range(3)]
        await parked(storage, key)
        assert await other.waits.resolve(key.text, YES) == Accepted()
        assert await soon(asyncio.gather(*tasks)) == [YES] * 6

    async def test_waiters_are_told_apart(self, harness: Harness) -> None:
        """Each waiter gets the resolution of its own wait, in any order."""
        storage = await placed(await harness.open())
        keys = [await key_of(storage, str(number)) for number in range(50)]
        tasks = [waiting(storage, key) for key in keys]
        await parked(storage, *keys)
        for number, key in reversed(list(enumerate(keys))):
            await storage.waits.resolve(key, Resolved(value=number))
        assert await soon(asyncio.gather(*tasks)) == [Resolved(value=number) for number in range(50)]

    async def test_a_resolution_during_the_opening_is_not_missed(self, harness: Harness) -> None:
        """A waiter that starts while another caller resolves gets the resolution, at whatever moment."""
        storage, other = await harness.open(), await harness.open()
        await placed(storage)
        for number in range(40):
            key = await key_of(storage, str(number))
            task = waiting(storage, key)
            for _ in range(number % 8):
                await asyncio.sleep(0)
            await other.waits.resolve(key, YES)
            assert await soon(task) == YES

    async def test_a_cancelled_wait_wakes_who_waits(self, harness: Harness) -> None:
        """Cancelling a wait ends it for every waiter."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        task = waiting(storage, key)
        await parked(storage, key)
        await (await harness.open()).waits.cancel(key)
        assert await soon(task) == Cancelled()

    async def test_a_caller_that_is_cancelled_leaves_the_wait(self, harness: Harness) -> None:
        """Cancelling a waiting task resolves nothing; another waiter keeps waiting."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        leaving, staying = waiting(storage, key), waiting(storage, key)
        await parked(storage, key)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert await storage.waits.resolve(key, YES) == Accepted()
        assert await soon(staying) == YES

    async def test_a_deadline_ends_the_wait_for_everybody(self, harness: Harness) -> None:
        """At the deadline every waiter times out, by the storage's clock and without a worker."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        tasks = [waiting(storage, key, 60_000), waiting(storage, key), waiting(storage, key, 10)]
        await parked(storage, key)
        await harness.clock.advance(60_000)
        assert await soon(asyncio.gather(*tasks)) == [TimedOut()] * 3
        assert await storage.waits.resolve(key, YES) == AlreadyResolved(terminal=TimedOut())

    async def test_a_worker_that_times_out_wakes_who_waits(self, harness: Harness) -> None:
        """A timeout recorded by another worker wakes the waiters."""
        storage, worker = await harness.open(), await harness.open()
        await placed(storage)
        key = await key_of(storage)
        task = waiting(storage, key, 60_000)
        await parked(storage, key)
        await harness.clock.advance(60_000)
        await worker.waits.expire()
        assert await soon(task) == TimedOut()

    async def test_the_racing_result_is_returned(self, harness: Harness) -> None:
        """A result that comes before the timeout is recorded wins for the waiters too."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        await storage.waits.open(key, timeout_ms=1_000)
        await harness.clock.advance(1_000)
        await storage.waits.resolve(key, YES)
        assert await soon(storage.waits.wait(key, timeout_ms=1_000)) == YES

    async def test_a_passed_deadline_is_noticed_at_once(self, harness: Harness) -> None:
        """A wait that starts after the deadline, as after a crash, times out at once."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        await storage.waits.open(key, timeout_ms=1_000)
        await harness.clock.advance(5_000)
        assert await soon(storage.waits.wait(key, timeout_ms=1_000)) == TimedOut()

    async def test_patience_ends_only_the_call(self, harness: Harness) -> None:
        """A caller's own timeout ends only its call; the wait stays open and keeps its deadline."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        for patience_s in (0, 0.001):
            with pytest.raises(WaitTimedOut, match=key.key_id):
                await storage.waits.wait(key, timeout_ms=5_000, patience_s=patience_s)
        record = await storage.waits.get(key)
        assert record is not None
        assert (record.resolution, record.deadline_ms) == (None, harness.clock.now_ms() + 5_000)
        await storage.waits.resolve(key, YES)
        assert await storage.waits.wait(key, patience_s=0) == YES

    @pytest.mark.parametrize("bad", [-1, float("nan")])
    async def test_bad_patience_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """A negative timeout, or one that is not a number, raises InvalidInput."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        with pytest.raises(InvalidInput, match="patience_s"):
            await storage.waits.wait(key, patience_s=bad)
        assert await storage.waits.get(key) is None

    async def test_closing_ends_every_wait(self, harness: Harness) -> None:
        """Waits under way and later ones raise StorageClosed."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        task = waiting(storage, key, 60_000)
        await parked(storage, key)
        await storage.close()
        with pytest.raises(StorageClosed):
            await soon(task)
        with pytest.raises(StorageClosed):
            await storage.waits.wait(key)


class TestWaitLife:
    """Laws of what invalidates keys."""

    async def test_revoking_ends_the_keys_of_a_session(self, harness: Harness) -> None:
        """Every key of the session's scopes becomes unknown; those of other sessions and of processes stay."""
        storage = await placed(await harness.open())
        await created(storage, "other")
        mine = [await storage.waits.key(scope, CUSTOM) for scope in TURNS]
        never_used = await key_of(storage, "never")
        others = [
            await storage.waits.key(scope, CUSTOM)
            for scope in (PROCESS, OPERATION, type(TURN)(session_id="other", turn_id="t"))
        ]
        for key in (*mine[:2], *others):
            await storage.waits.open(key)
        await storage.waits.resolve(mine[2], YES)
        assert await storage.waits.revoke("s") == 3
        for key in (*mine, never_used):
            assert await storage.waits.resolve(key, YES) == UnknownOrRevoked()
            assert await storage.waits.get(key) is None
            with pytest.raises(WaitUnknown):
                await storage.waits.open(key)
            with pytest.raises(WaitUnknown):
                await storage.waits.wait(key)
        for key in others:
            assert await storage.waits.resolve(key, YES) == Accepted()

    async def test_keys_after_a_revocation_are_new(self, harness: Harness) -> None:
        """After a revocation the session can wait again, under new keys."""
        storage = await placed(await harness.open())
        keys = []
        for _ in range(3):
            keys.append(await key_of(storage))
            await storage.waits.open(keys[-1])
            await storage.waits.revoke("s")
        last = await key_of(storage)
        assert len({key.key_id for key in (*keys, last)}) == 4
        assert await storage.waits.resolve(last, YES) == Accepted()
        assert [await storage.waits.resolve(key, YES) for key in keys] == [UnknownOrRevoked()] * 3
        assert await (await harness.open()).waits.wait(last) == YES

    async def test_revoking_what_is_not_there(self, harness: Harness) -> None:
        """A session that never existed, was deleted or never waited has nothing to revoke."""
        storage = await harness.open()
        await created(storage)
        assert await storage.waits.revoke("s") == 0
        await storage.sessions.delete("s")
        assert [await storage.waits.revoke(name) for name in ("s", "never")] == [0, 0]

    async def test_revoking_ends_those_who_wait(self, harness: Harness) -> None:
        """Waiters fail when their keys are revoked, in every storage."""
        storage, other = await harness.open(), await harness.open()
        await placed(storage)
        key = await key_of(storage)
        tasks = [waiting(storage, key), waiting(other, key, 60_000)]
        await parked(storage, key)
        await storage.waits.revoke("s")
        for task in tasks:
            with pytest.raises(WaitUnknown):
                await soon(task)

    async def test_deleting_a_session_ends_its_waits(self, harness: Harness) -> None:
        """The session's waits are gone, its keys are unknown, and its waiters fail."""
        storage, other = await harness.open(), await harness.open()
        await placed(storage)
        key, early = await key_of(storage), await key_of(storage, "early")
        await storage.waits.resolve(early, YES)
        tasks = [waiting(storage, key), waiting(other, key)]
        await parked(storage, key)
        await storage.sessions.delete("s")
        assert await storage.waits.pending() == ()
        for each in (key, early):
            assert await storage.waits.resolve(each, YES) == UnknownOrRevoked()
            assert await storage.waits.get(each) is None
        for task in tasks:
            with pytest.raises(WaitUnknown):
                await soon(task)

    async def test_a_session_made_again_has_new_keys(self, harness: Harness) -> None:
        """Keys of the deleted session stay invalid permanently; those of its successor differ and work."""
        storage = await placed(await harness.open())
        old = await key_of(storage)
        await storage.waits.resolve(old, YES)
        await storage.sessions.delete("s")
        await created(storage)
        new = await key_of(storage)
        assert new.key_id != old.key_id
        assert await storage.waits.resolve(old, YES) == UnknownOrRevoked()
        assert await storage.waits.get(new) is None
        assert await storage.waits.resolve(new, Resolved(value=2)) == Accepted()
        assert await storage.waits.wait(new) == Resolved(value=2)

    async def test_pruning_a_process_ends_its_waits(self, harness: Harness) -> None:
        """The process's waits are gone, its keys unknown, its waiters fail; a new process of its id has new keys."""
        storage = await placed(await harness.open())
        key = await key_of(storage, scope=PROCESS)
        await storage.processes.complete("p", DONE)
        task = waiting(storage, key)
        await parked(storage, key)
        await harness.clock.advance(10)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        with pytest.raises(WaitUnknown):
            await soon(task)
        assert await storage.waits.pending() == ()
        await registered(storage)
        assert await storage.waits.resolve(key, YES) == UnknownOrRevoked()
        again = await key_of(storage, scope=PROCESS)
        assert again.key_id != key.key_id
        assert await storage.waits.resolve(again, YES) == Accepted()

    async def test_a_process_that_ended_keeps_its_waits(self, harness: Harness) -> None:
        """Until it is pruned, the resolutions of its waits can be read."""
        storage = await placed(await harness.open())
        key = await key_of(storage, scope=PROCESS)
        await storage.waits.resolve(key, YES)
        await storage.processes.complete("p", DONE)
        assert await storage.waits.wait(key) == YES

    async def test_revoking_and_resolving_at_once(self, harness: Harness) -> None:
        """A resolution concurrent with a revocation leaves nothing under the old key."""
        storages = [await harness.open() for _ in range(4)]
        await placed(storages[0])
        for number in range(10):
            keys = [await key_of(storages[0], str(each)) for each in range(4)]
            await asyncio.gather(
                *(storage.waits.resolve(key, YES) for storage, key in zip(storages, keys, strict=True)),
                *(storage.waits.open(key) for storage, key in zip(storages, reversed(keys), strict=True)),
                storages[number % 4].waits.revoke("s"),
                return_exceptions=True,
            )
            assert [await storages[0].waits.get(key) for key in keys] == [None] * 4
        assert await storages[0].waits.pending() == ()
