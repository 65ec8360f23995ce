"""The contract of waits: the first resolution wins, from any resolver, and deadlines are set once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lash.errors import InvalidInput
from lash.model.effect import ExecutionScope
from lash.model.wait import (
    Accepted,
    AlreadyResolved,
    Cancelled,
    Rejected,
    Resolution,
    Resolved,
    TimedOut,
    UnknownOrRevoked,
    WaitRecord,
)
from lash.testing.harness import Harness
from tests.contract.test_input import BAD_JSON
from tests.factories.wait import OPERATION, PROCESS, SCOPES, TURN, YES, key_of, pending_all, placed

RESOLUTIONS: tuple[Resolution, ...] = (
    YES,
    Resolved(),
    Rejected(code="denied", message="no", raw={"by": "boss"}),
    TimedOut(),
    Cancelled(),
)


class TestWait:
    """Laws of opening, resolving and timing out."""

    @pytest.mark.parametrize("resolution", RESOLUTIONS, ids=lambda each: type(each).__name__)
    async def test_the_first_resolution_stands(self, harness: Harness, resolution: Resolution) -> None:
        """Every later resolver, of any kind, gets the first resolution; nothing changes it."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        await storage.waits.open(key)
        assert await storage.waits.resolve(key, resolution) == Accepted()
        before = await storage.waits.get(key)
        for later in RESOLUTIONS:
            assert await storage.waits.resolve(key.text, later) == AlreadyResolved(terminal=resolution)
        assert await storage.waits.cancel(key) == AlreadyResolved(terminal=resolution)
        assert await storage.waits.get(key) == before
        assert before is not None
        assert before.resolution == resolution
        assert await storage.waits.wait(key) == resolution

    @pytest.mark.parametrize("scope", SCOPES, ids=lambda each: type(each).__name__)
    async def test_an_early_resolution_is_kept(self, harness: Harness, scope: ExecutionScope) -> None:
        """A resolution that comes before the wait is returned to later waiters, in every scope."""
        storage = await placed(await harness.open())
        key = await key_of(storage, scope=scope)
        assert await storage.waits.get(key) is None
        assert await storage.waits.resolve(key, YES) == Accepted()
        now_ms = harness.clock.now_ms()
        record = WaitRecord(
            key_id=key.key_id,
            scope=scope,
            identity=key.identity,
            resolution=YES,
            created_at_ms=now_ms,
            resolved_at_ms=now_ms,
        )
        await harness.clock.advance(5)
        other = await harness.open()
        assert await other.waits.get(key.text) == record
        assert await other.waits.open(key, timeout_ms=5) == record
        assert await other.waits.wait(key) == YES

    async def test_a_wait_that_is_open_is_pending(self, harness: Harness) -> None:
        """Opening lists the wait once; resolving removes it from the list and keeps its start."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        first = await storage.waits.open(key)
        began = harness.clock.now_ms()
        assert first == WaitRecord(key_id=key.key_id, scope=TURN, identity=key.identity, created_at_ms=began)
        await harness.clock.advance(7)
        assert await storage.waits.open(key.text) == first
        assert await storage.waits.pending() == (first,)
        await storage.waits.resolve(key, YES)
        assert await storage.waits.pending() == ()
        ended = await storage.waits.get(key)
        assert ended is not None
        assert (ended.created_at_ms, ended.resolved_at_ms) == (began, began + 7)

    async def test_an_operator_resolves_an_open_wait_by_its_id(self, harness: Harness) -> None:
        """The id that a list shows resolves the wait like its key; other ids, and those of deleted owners, do not."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        assert await storage.waits.resolve_id(key.key_id, YES) == UnknownOrRevoked()
        await storage.waits.open(key)
        (listed,) = await storage.waits.pending()
        assert await storage.waits.resolve_id(listed.key_id, YES) == Accepted()
        assert await storage.waits.wait(key) == YES
        assert await storage.waits.resolve_id(listed.key_id, Cancelled()) == AlreadyResolved(terminal=YES)
        for wrong in ("0" * 63, key.text, 7):
            with pytest.raises(InvalidInput):
                await storage.waits.resolve_id(wrong, YES)  # type: ignore[arg-type]
        await storage.waits.revoke("s")
        assert await storage.waits.resolve_id(listed.key_id, YES) == UnknownOrRevoked()

    async def test_cancelling_is_a_resolution(self, harness: Harness) -> None:
        """The first cancellation decides; a late result returns it."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        assert await storage.waits.cancel(key) == Accepted()
        assert await storage.waits.resolve(key, YES) == AlreadyResolved(terminal=Cancelled())
        assert await storage.waits.wait(key) == Cancelled()

    async def test_concurrent_resolvers_agree(self, harness: Harness) -> None:
        """Of concurrent resolvers over several storages one is accepted, and all others get its resolution."""
        storages = [await harness.open() for _ in range(4)]
        await placed(storages[0])
        key = await key_of(storages[0])
        answers = await asyncio.gather(
            *(storage.waits.resolve(key, Resolved(value=number)) for number, storage in enumerate(storages * 5))
        )
        winners = [number for number, answer in enumerate(answers) if answer == Accepted()]
        assert len(winners) == 1
        terminal = Resolved(value=winners[0])
        assert [each for each in answers if each != Accepted()] == [AlreadyResolved(terminal=terminal)] * 19
        assert await storages[0].waits.wait(key) == terminal

    async def test_concurrent_resolvers_of_an_open_wait_agree(self, harness: Harness) -> None:
        """The same holds with waiters already present, with a deadline or without."""
        storages = [await harness.open() for _ in range(3)]
        await placed(storages[0])
        for number in range(10):
            key = await key_of(storages[0], str(number))
            await storages[0].waits.open(key, timeout_ms=60_000 if number % 2 else None)
            answers = await asyncio.gather(*(storage.waits.resolve(key, YES) for storage in storages))
            assert sorted(answers, key=str) == [Accepted(), *[AlreadyResolved(terminal=YES)] * 2]

    async def test_concurrent_openers_agree(self, harness: Harness) -> None:
        """Of concurrent opens with different deadlines one sets it, and all return it."""
        storages = [await harness.open() for _ in range(4)]
        await placed(storages[0])
        key = await key_of(storages[0])
        opened = await asyncio.gather(
            *(storage.waits.open(key, timeout_ms=1_000 + number) for number, storage in enumerate(storages * 5))
        )
        deadlines = {record.deadline_ms for record in opened}
        assert len(deadlines) == 1
        assert (deadlines.pop() or 0) - harness.clock.now_ms() in range(1_000, 1_020)

    async def test_the_deadline_is_set_once(self, harness: Harness) -> None:
        """The deadline is absolute, counted from the first open that names one; later opens do not move it."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        assert (await storage.waits.open(key)).deadline_ms is None
        await harness.clock.advance(100)
        deadline = harness.clock.now_ms() + 1_000
        assert (await storage.waits.open(key, timeout_ms=1_000)).deadline_ms == deadline
        await harness.clock.advance(100)
        for timeout_ms in (None, 1, 1_000_000):
            assert (await storage.waits.open(key, timeout_ms=timeout_ms)).deadline_ms == deadline

    async def test_a_deadline_survives_reopening(self, harness: Harness) -> None:
        """A run after a crash waits for the remaining time, not for the whole time again."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        first = await storage.waits.open(key, timeout_ms=1_000)
        again = await harness.reopen()
        await harness.clock.advance(600)
        assert await again.waits.open(key.text, timeout_ms=1_000) == first
        await harness.clock.advance(400)
        assert await again.waits.expire() == 1
        assert await again.waits.wait(key) == TimedOut()

    async def test_what_is_over_is_timed_out(self, harness: Harness) -> None:
        """From its deadline on, and not before, a wait is timed out; late resolvers get that resolution."""
        storage = await placed(await harness.open())
        keys = [await key_of(storage, str(number)) for number in range(4)]
        for number, key in enumerate(keys):
            await storage.waits.open(key, timeout_ms=None if number == 3 else 100 * (number + 1))
        await storage.waits.resolve(keys[1], YES)
        await harness.clock.advance(99)
        assert await storage.waits.expire() == 0
        await harness.clock.advance(1)
        assert await storage.waits.expire() == 1
        assert await storage.waits.resolve(keys[0], YES) == AlreadyResolved(terminal=TimedOut())
        timed_out = await storage.waits.get(keys[0])
        assert timed_out is not None
        assert timed_out.resolved_at_ms == timed_out.deadline_ms == harness.clock.now_ms()
        await harness.clock.advance(10_000)
        assert await storage.waits.expire() == 1
        assert await storage.waits.expire() == 0
        assert await storage.waits.wait(keys[1]) == YES
        assert [each.key_id for each in await storage.waits.pending()] == [keys[3].key_id]

    async def test_what_is_over_goes_in_portions(self, harness: Harness) -> None:
        """The earliest deadlines come first, no more than the limit."""
        storage = await placed(await harness.open())
        keys = [await key_of(storage, str(number)) for number in range(5)]
        for number, key in enumerate(keys):
            await storage.waits.open(key, timeout_ms=10 * (5 - number))
        await harness.clock.advance(1_000)
        assert await storage.waits.expire(limit=2) == 2
        left = {each.key_id for each in await storage.waits.pending()}
        assert left == {key.key_id for key in keys[:3]}
        assert [await storage.waits.expire(limit=2) for _ in range(3)] == [2, 1, 0]

    async def test_two_workers_time_out_once(self, harness: Harness) -> None:
        """Concurrent workers expire each wait once."""
        storage, other = await harness.open(), await harness.open()
        await placed(storage)
        for number in range(20):
            await storage.waits.open(await key_of(storage, str(number)), timeout_ms=1)
        await harness.clock.advance(1)
        counts = await asyncio.gather(*(each.waits.expire(limit=15) for each in (storage, other) * 3))
        while more := await storage.waits.expire():
            counts.append(more)
        assert sum(counts) == 20

    async def test_a_late_result_before_the_timeout_is_written_stands(self, harness: Harness) -> None:
        """A late result wins if it comes before a worker records the timeout."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        await storage.waits.open(key, timeout_ms=10)
        await harness.clock.advance(50)
        assert await storage.waits.resolve(key, YES) == Accepted()
        assert await storage.waits.expire() == 0
        assert await storage.waits.wait(key) == YES

    async def test_far_deadlines_do_not_overflow(self, harness: Harness) -> None:
        """The farthest deadline is the largest time that a column can hold."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        assert (await storage.waits.open(key, timeout_ms=2**63 - 1)).deadline_ms == 2**63 - 1
        waiting = asyncio.create_task(storage.waits.wait(key))
        await asyncio.sleep(0.01)
        await storage.waits.resolve(key, YES)
        assert await asyncio.wait_for(waiting, 60) == YES

    async def test_pending_waits_are_listed_in_pages(self, harness: Harness) -> None:
        """Pending waits are listed by the ids of their keys, all of them or those of one scope."""
        storage = await placed(await harness.open())
        keys = [await key_of(storage, str(number), scope) for number in range(4) for scope in SCOPES]
        for key in keys:
            await storage.waits.open(key)
        await storage.waits.resolve(keys[0], YES)
        expected = sorted(key.key_id for key in keys[1:])
        first = await storage.waits.pending(limit=7)
        rest = await storage.waits.pending(limit=100, after=first[-1].key_id)
        assert [each.key_id for each in (*first, *rest)] == expected
        assert [each.key_id for each in await pending_all(storage)] == expected
        mine = await storage.waits.pending(scope=PROCESS)
        assert [each.key_id for each in mine] == sorted(key.key_id for key in keys if key.scope == PROCESS)
        assert {each.scope for each in mine} == {PROCESS}
        assert len(await storage.waits.pending(scope=PROCESS, limit=3)) == 3
        assert len(await storage.waits.pending(scope=PROCESS, after=mine[2].key_id)) == 1

    async def test_resolved_waits_of_operations_are_pruned(self, harness: Harness) -> None:
        """A wait of an operation is pruned once it is resolved and old; other waits are not."""
        storage = await placed(await harness.open())
        keys = [await key_of(storage, str(number), OPERATION) for number in range(4)]
        others = [await key_of(storage, "k", scope) for scope in SCOPES if scope != OPERATION]
        for key in (*keys[:3], *others):
            await storage.waits.resolve(key, YES)
            await harness.clock.advance(1)
        await storage.waits.open(keys[3])
        moment = harness.clock.now_ms()
        assert await storage.waits.prune(resolved_before_ms=moment, limit=2) == 2
        assert await storage.waits.prune(resolved_before_ms=moment) == 1
        assert await storage.waits.prune(resolved_before_ms=moment) == 0
        assert [await storage.waits.get(key) for key in keys[:3]] == [None] * 3
        assert None not in [await storage.waits.get(key) for key in (keys[3], *others)]

    @pytest.mark.parametrize("value", BAD_JSON.values(), ids=BAD_JSON)
    async def test_what_cannot_be_stored_resolves_nothing(self, harness: Harness, value: Any) -> None:  # noqa: ANN401
        """A resolution that JSON cannot carry is refused, and the wait stays unchanged."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        before = await storage.waits.open(key)
        for bad in (Resolved(value=value), Rejected(code="c", message="m", raw=value)):
            with pytest.raises(InvalidInput, match="resolution"):
                await storage.waits.resolve(key, bad)
        assert await storage.waits.get(key) == before

    @pytest.mark.parametrize(
        "bad", [None, "ok", {"status": "ok"}, Accepted(), Rejected(code=" ", message="m")], ids=repr
    )
    async def test_what_is_no_resolution_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """An invalid resolution is refused before anything is written."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        with pytest.raises(InvalidInput):
            await storage.waits.resolve(key, bad)
        assert await storage.waits.get(key) is None

    @pytest.mark.parametrize("bad", [-1, 2**63, 1.5, "1", True], ids=repr)
    async def test_bad_numbers_are_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """Invalid times, limits and cursors open, resolve and remove nothing."""
        storage = await placed(await harness.open())
        key = await key_of(storage)
        for call in (storage.waits.open, storage.waits.wait):
            with pytest.raises(InvalidInput, match="timeout_ms"):
                await call(key, timeout_ms=bad)
        for listing in (storage.waits.pending, storage.waits.expire):
            with pytest.raises(InvalidInput, match="limit"):
                await listing(limit=bad)
        with pytest.raises(InvalidInput, match="after"):
            await storage.waits.pending(after=bad)
        assert await storage.waits.get(key) is None
