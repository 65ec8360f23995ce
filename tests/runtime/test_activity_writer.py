"""The activity writer never waits and never raises, and reports what it lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest
import pytest_asyncio

import lash
from lash.errors import InvalidInput, SessionNotFound, StoreUnavailable
from lash.model.activity import (
    ActivityDraft,
    ActivityPage,
    Committed,
    Gap,
    ObserveCursor,
    Observed,
    SeenChanges,
    TurnActivity,
)
from lash.model.gap import GapReason
from lash.model.value import JSON
from lash.plan.activity import encode_cursor
from lash.runtime.observe.activity import ActivityWriter
from lash.runtime.observe.stream import current_cursor, observe
from lash.stores.activity import ActivityStore
from lash.stores.storage import Storage
from tests.factories.session import commit, created, node, started

LIMIT_S = 20
NEVER_S = 3_600.0


@pytest_asyncio.fixture
async def storage(backend_url: str) -> AsyncIterator[Storage]:
    async with await lash.open(backend_url) as opened:
        await started(opened)
        yield opened


class Gate:
    """A real store whose appends wait until the test releases them, or fail."""

    def __init__(self, store: ActivityStore) -> None:
        self._store = store
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        self.failure: Exception | None = None
        self.appends: list[int] = []

    async def append(self, session_id: str, items: Sequence[ActivityDraft]) -> int:
        self.entered.set()
        self.appends.append(len(items))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return await self._store.append(session_id, items)

    async def read(self, session_id: str, place: ObserveCursor | None = None, *, limit: int = 256) -> ActivityPage:
        return await self._store.read(session_id, place, limit=limit)

    async def process_changes(self, session_id: str, cursor: str, *, limit: int = 256) -> SeenChanges | None:
        return await self._store.process_changes(session_id, cursor, limit=limit)


class Losses:
    """The losses that the writer reports."""

    def __init__(self) -> None:
        self.count = 0
        self.errors: list[type[Exception] | None] = []
        self.happened = asyncio.Event()

    def __call__(self, _session_id: str, count: int, error: Exception | None) -> None:
        self.count += count
        self.errors.append(None if error is None else type(error))
        self.happened.set()


async def told(storage: Storage, count: int, *, session_id: str = "s") -> list[Observed]:
    """Return the first values that a new observer of the activity gets."""
    cursor = encode_cursor(
        session_id, ObserveCursor(revision=(await storage.activity.read(session_id)).newest.revision)
    )
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, session_id, cursor)) as stream:
        return [await anext(stream) for _ in range(count)]


def short(values: Sequence[Observed]) -> list[JSON | tuple[str, int]]:
    """Return the payloads, and the losses between them."""
    shown: list[JSON | tuple[str, int]] = []
    for value in values:
        if isinstance(value, TurnActivity):
            shown.append(value.payload)
        else:
            assert isinstance(value, Gap)
            assert value.reason is GapReason.DROPPED
            shown.append(("lost", value.lost))
    return shown


async def test_what_is_told_is_written_in_order(storage: Storage) -> None:
    """The pieces of two turns in two sessions are written in order, in the background, without a flush."""
    await created(storage, "other")
    writer = ActivityWriter(storage.activity)
    for number in range(100):
        writer.show("s", "t", number)
        writer.show("other", "u", -number)
    assert short(await told(storage, 100)) == list(range(100))
    assert short(await told(storage, 100, session_id="other")) == [-number for number in range(100)]
    await writer.close()


async def test_few_appends_carry_many_pieces(storage: Storage) -> None:
    """The first piece is written at once; later ones are grouped until a pause ends or their size is large."""
    gate = Gate(storage.activity)
    gate.open.set()
    writer = ActivityWriter(gate, pause_s=NEVER_S)
    writer.show("s", "t", 0)
    assert short(await told(storage, 1)) == [0]
    for number in range(1, 64):
        writer.show("s", "t", number)
    await asyncio.sleep(0.05)
    assert gate.appends == [1]
    writer.show("s", "t", 64)
    assert short(await told(storage, 65)) == list(range(65))
    assert gate.appends == [1, 64]
    await writer.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("lash-activity")]


async def test_a_silent_writer_runs_nothing(storage: Storage) -> None:
    """The task ends after a pause without pieces, and starts again with the next piece."""
    writer = ActivityWriter(storage.activity, pause_s=0)
    for number in range(1, 4):
        writer.show("s", "t", number)
        (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "lash-activity-writer"]
        async with asyncio.timeout(LIMIT_S):
            await task
        assert (await storage.activity.read("s")).newest.position == number


async def test_a_slow_storage_drops_the_oldest_and_says_so(storage: Storage) -> None:
    """Turns continue while writes hang; observers learn how many pieces are missing."""
    gate, losses = Gate(storage.activity), Losses()
    writer = ActivityWriter(gate, pause_s=0, max_items=10, on_loss=losses)
    writer.show("s", "t", "in flight")
    await gate.entered.wait()
    for number in range(1_000):
        writer.show("s", "t", number)
    assert (losses.count, set(losses.errors)) == (990, {None})
    gate.open.set()
    await writer.flush("s")
    assert short(await told(storage, 12)) == ["in flight", ("lost", 990), *range(990, 1_000)]
    await writer.close()


async def test_a_buffer_is_bounded_in_bytes(storage: Storage) -> None:
    """Large pieces evict the oldest before there are many; the newest always fits."""
    gate, losses = Gate(storage.activity), Losses()
    writer = ActivityWriter(gate, pause_s=NEVER_S, max_bytes=2_500, on_loss=losses)
    for letter in "abcd":
        writer.show("s", "t", letter * 1_000)
    assert losses.count == 2
    writer.show("s", "t", "e" * 3_000)
    assert losses.count == 4
    gate.open.set()
    await writer.flush("s")
    assert short(await told(storage, 2)) == [("lost", 4), "e" * 3_000]
    await writer.close()


async def test_a_failing_storage_fails_no_turn(storage: Storage) -> None:
    """Neither showing nor flushing raises; pieces that could not be written are reported lost, not retried."""
    gate, losses = Gate(storage.activity), Losses()
    gate.open.set()
    gate.failure = StoreUnavailable("the server is away")
    writer = ActivityWriter(gate, pause_s=NEVER_S, on_loss=losses)
    writer.show("s", "t", 1)
    writer.show("s", "t", 2)
    await writer.flush("s")
    assert (losses.count, losses.errors) == (2, [StoreUnavailable])
    gate.failure = None
    writer.show("s", "t", 3)
    await writer.flush("s")
    assert short(await told(storage, 2)) == [("lost", 2), 3]
    assert writer._buffers == {}
    await writer.close()


async def test_a_loss_is_carried_by_what_comes_next(storage: Storage) -> None:
    """Within a turn, the piece after a failed append carries the number of missing pieces."""
    gate, losses = Gate(storage.activity), Losses()
    gate.open.set()
    gate.failure = StoreUnavailable("the server is away")
    writer = ActivityWriter(gate, pause_s=0, on_loss=losses)
    writer.show("s", "t", 1)
    writer.show("s", "t", 2)
    await losses.happened.wait()
    gate.failure = None
    writer.show("s", "t", 3)
    await writer.flush("s")
    assert short(await told(storage, 2)) == [("lost", 2), 3]
    await writer.close()


async def test_what_cannot_be_stored_is_told_as_lost(storage: Storage) -> None:
    """A loss is reported at its position, even if no piece follows."""
    losses = Losses()
    writer = ActivityWriter(storage.activity, pause_s=NEVER_S, on_loss=losses)
    writer.show("s", "t", 1)
    writer.show("s", "t", object())  # type: ignore[arg-type]
    writer.show("s", "t", "x" * 70_000)
    assert losses.errors == [InvalidInput, InvalidInput]
    await writer.flush("s")
    assert short(await told(storage, 3)) == [1, ("lost", 1), ("lost", 1)]
    await writer.close()


async def test_a_loss_at_the_end_of_a_turn_is_told_too(storage: Storage) -> None:
    """A loss without a following piece is written as a row of its own."""
    gate, losses = Gate(storage.activity), Losses()
    gate.open.set()
    gate.failure = StoreUnavailable("the server is away")
    writer = ActivityWriter(gate, pause_s=0, on_loss=losses)
    writer.show("s", "t", 1)
    await losses.happened.wait()
    gate.failure = None
    await writer.flush("s")
    assert short(await told(storage, 1)) == [("lost", 1)]
    assert writer._buffers == {}
    await writer.close()


async def test_a_thread_may_show_something(storage: Storage) -> None:
    """Pieces from a thread are written in order; a thread that outlives the loop writes nothing."""
    writer = ActivityWriter(storage.activity)

    def tool() -> None:
        for number in range(50):
            writer.show("s", "t", number)

    await asyncio.to_thread(tool)
    await writer.flush("s")
    assert short(await told(storage, 50)) == list(range(50))
    await writer.close()

    async def make() -> ActivityWriter:
        return ActivityWriter(storage.activity)

    ended = await asyncio.to_thread(lambda: asyncio.run(make()))
    ended.show("s", "t", "not shown")


async def test_writing_many_sessions_keeps_what_is_told_meanwhile(storage: Storage) -> None:
    """A session flushed while others are being written loses nothing of its next turn."""
    names = [f"s{number}" for number in range(12)]
    for name in names:
        await created(storage, name)
    gate = Gate(storage.activity)
    writer = ActivityWriter(gate, pause_s=0)
    for name in names:
        writer.show(name, "t", 1)
    await gate.entered.wait()
    flushes = [asyncio.ensure_future(writer.flush(name)) for name in names]
    await asyncio.sleep(0)
    gate.open.set()
    for name, flush in zip(names, flushes, strict=True):
        await flush
        writer.show(name, "u", 2)
    for name in names:
        await writer.flush(name)
        assert short(await told(storage, 2, session_id=name)) == [1, 2]
    await writer.close()


async def test_what_is_shown_is_what_it_was(storage: Storage) -> None:
    """A payload that is changed after it was shown is written as it was."""
    writer = ActivityWriter(storage.activity, pause_s=NEVER_S)
    payload = {"text": "before"}
    writer.show("s", "t", payload)
    payload["text"] = "after"
    await writer.flush("s")
    assert short(await told(storage, 1)) == [{"text": "before"}]
    await writer.close()


async def test_a_session_that_is_gone_takes_its_activity_with_it(storage: Storage) -> None:
    """Activity of a deleted session is dropped."""
    losses = Losses()
    writer = ActivityWriter(storage.activity, pause_s=NEVER_S, on_loss=losses)
    writer.show("never", "t", 1)
    await writer.flush("never")
    assert losses.count == 1
    assert set(losses.errors) == {SessionNotFound}
    assert writer._buffers == {}
    await writer.close()


async def test_a_flush_does_not_wait_for_ever(storage: Storage) -> None:
    """A turn continues when its storage hangs; its pieces follow later."""
    gate = Gate(storage.activity)
    writer = ActivityWriter(gate, pause_s=0)
    writer.show("s", "t", 1)
    async with asyncio.timeout(LIMIT_S):
        await writer.flush("s", limit_s=0.01)
    gate.open.set()
    assert short(await told(storage, 1)) == [1]
    await writer.close()


async def test_a_turn_is_shown_before_its_commit_is_told(storage: Storage) -> None:
    """With a flush before each commit, an observer gets the pieces of every turn, then its commit."""
    cursor = await current_cursor(storage, "s")
    session, writer = storage.session("s"), ActivityWriter(storage.activity)
    leaf = "a"
    for turn in range(5):
        for piece in range(3):
            writer.show("s", f"turn {turn}", piece)
        await writer.flush("s")
        await session.commit(commit(turn + 1, node(f"n{turn}", leaf)))
        leaf = f"n{turn}"
    seen: list[str | int] = []
    async with asyncio.timeout(LIMIT_S), aclosing(observe(storage, "s", cursor)) as stream:
        async for observed in stream:
            if isinstance(observed, TurnActivity):
                seen.append(f"{observed.turn_id}: {observed.payload}")
            else:
                assert isinstance(observed, Committed)
                seen.append(observed.revision)
            if seen[-1] == 6:
                break
    expected: list[str | int] = []
    for turn in range(5):
        expected += [*(f"turn {turn}: {piece}" for piece in range(3)), turn + 2]
    assert seen == expected
    await writer.close()


@pytest.mark.parametrize("closes", [1, 2])
async def test_closing_writes_what_is_left(storage: Storage, closes: int) -> None:
    """A closed writer accepts nothing; closing is idempotent."""
    writer = ActivityWriter(storage.activity, pause_s=NEVER_S)
    writer.show("s", "t", 1)
    for _ in range(closes):
        await writer.close()
    writer.show("s", "t", 2)
    await writer.close()
    assert (await storage.activity.read("s")).newest.position == 1
