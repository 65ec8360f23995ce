"""Costs of activity: one statement to append and one to read, however much there is."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from lash.model.activity import ActivityDraft
from lash.runtime.observe.stream import current_cursor, observe
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.factories.process import event, process
from tests.factories.session import commit, node, started

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

LOOK = {"sqlite": ["activity_session", "activity_after"], "postgres": ["activity_read"]}
APPEND = {
    "sqlite": ["session_head", "activity_move_tail", "activity_trim", "activity_insert"],
    "postgres": ["activity_append"],
}


class Recorder:
    """Records the names of the statements that a storage runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        self.names.append(name)

    def take(self) -> list[str]:
        """Return what ran since the last call, except transaction control."""
        taken, self.names = self.names, []
        return [name for name in taken if "_" in name]


async def show(storage: Storage, count: int) -> None:
    await storage.activity.append("s", [ActivityDraft(turn_id="t", payload=number) for number in range(count)])


@pytest.mark.parametrize("before", [1, 2_048])
async def test_an_append_is_one_statement(harness: Harness, before: int) -> None:
    """An append of many items is one round trip on PostgreSQL, independent of how much is kept."""
    recorder = Recorder()
    storage = await harness.open(on_statement=recorder)
    await started(storage)
    for _ in range(0, before, 512):
        await show(storage, min(before, 512))
    recorder.take()
    await show(storage, 64)
    assert recorder.take() == APPEND[harness.backend]


async def test_a_look_is_one_statement(harness: Harness) -> None:
    """Head, activity, queue and the end of the feed come from one read."""
    recorder = Recorder()
    storage = await harness.open(on_statement=recorder)
    await started(storage)
    begin = (await storage.activity.read("s")).newest
    await show(storage, 64)
    recorder.take()
    await storage.activity.read("s", begin)
    assert recorder.take() == LOOK[harness.backend]


async def test_an_observer_asks_for_processes_only_when_some_changed(harness: Harness) -> None:
    """An observer of activity and commits costs one read per hint."""
    recorder, writer = Recorder(), await harness.open()
    session = await started(writer)
    storage = await harness.open(on_statement=recorder)
    async with aclosing(observe(storage, "s", await current_cursor(storage, "s"))) as stream, asyncio.timeout(60):
        await show(writer, 1)
        await anext(stream)
        await session.commit(commit(1, node("n", "a")))
        await anext(stream)
        assert "activity_process_changes" not in recorder.take()
        await writer.processes.register(process("p", wake_session_id="s"))
        await writer.events.append("p", event())
        await anext(stream)
        assert "activity_process_changes" in recorder.take()


async def test_many_observers_share_their_looks(harness: Harness) -> None:
    """Observers with equal cursors are served by one read, however many there are."""
    recorder, writer = Recorder(), await harness.open()
    await started(writer)
    storage = await harness.open(on_statement=recorder)
    cursor = await current_cursor(storage, "s")
    streams = [observe(storage, "s", cursor) for _ in range(100)]
    async with asyncio.timeout(60):
        for count in range(1, 4):
            recorder.take()
            await show(writer, 1)
            observed_once = await asyncio.gather(*(anext(stream) for stream in streams))
            assert len({observed.cursor for observed in observed_once}) == 1
            assert recorder.take().count(LOOK[harness.backend][0]) <= 10, count
    for stream in streams:
        await stream.aclose()
