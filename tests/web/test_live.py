"""The stream: one renderer for all open pages, and only what has changed is sent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import cast

import pytest

import lash
from lash.stores.storage import Storage
from lash.web.forms import PLACEHOLDER
from lash.web.live import Live, Pieces, Watched, pause_after
from lash.web.pages import PAGES
from lash.web.view import Visit
from tests.web.site import Counted, fill

PATIENCE_S = 30.0
STREAMED = ("", "sessions", "queue", "workers")
PAGE = Watched("sessions", (), may_act=True)


class Rendered:
    """Renders one piece that the test changes, and counts."""

    def __init__(self) -> None:
        self.text = "first"
        self.count = 0

    async def __call__(self, _watched: Watched) -> Pieces:
        self.count += 1
        return {"same": "<p>same</p>", "piece": f"<p>{self.text} {PLACEHOLDER} <time>{self.count}s</time></p>"}


async def pieces(events: AsyncIterator[str], count: int) -> list[str]:
    """Return the next pieces of a stream; other lines are left out."""
    found: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            if event.startswith("event: piece"):
                found.append(event.partition("data: ")[2].strip())
                if len(found) == count:
                    return found
    return found


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_two_streams_share_a_renderer(storage: Storage) -> None:
    """Two browsers with the same page are one render, each with its own token; ages alone are not sent."""
    rendered = Rendered()
    live = Live(lambda: storage, rendered)
    first, second = live.stream(PAGE, "token-a"), live.stream(PAGE, "token-b")
    at_first = await asyncio.gather(pieces(first, 2), pieces(second, 2))
    assert [each[0] for each in at_first] == ["<p>same</p>"] * 2
    assert "first token-a" in at_first[0][1]
    assert "first token-b" in at_first[1][1]
    renders = live.renders
    rendered.text = "second"
    storage.hints.notify()
    changed = await asyncio.gather(pieces(first, 1), pieces(second, 1))
    assert [each[0].partition(" token")[0] for each in changed] == ["<p>second"] * 2
    # A hint can come while a page is rendered, which is then rendered once more; never once for each stream.
    assert live.renders - renders <= 2
    await asyncio.gather(first.aclose(), second.aclose())


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_nothing_is_rendered_without_a_stream(storage: Storage) -> None:
    """When the last browser has gone, the renderer ends and its listener with it."""
    live = Live(lambda: storage, Rendered())
    stream = live.stream(PAGE, "t")
    await pieces(stream, 2)
    await stream.aclose()
    renders = live.renders
    storage.hints.notify()
    await asyncio.sleep(0)
    assert live.renders == renders
    assert [task for task in asyncio.all_tasks() if "Live._run" in repr(task) and not task.cancelling()] == []


async def test_a_page_follows_the_storage(storage: Storage) -> None:
    """A change by another writer is on the page without a reload, on both databases."""
    live = Live(lambda: storage, _renderer(storage))
    stream = live.stream(PAGE, "t")
    await pieces(stream, 2)
    await lash.SessionHandle(storage, "newcomer").send("hello")
    async with asyncio.timeout(PATIENCE_S):
        while "newcomer" not in (await pieces(stream, 1))[0]:
            pass
    await stream.aclose()


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_streams_end_with_the_storage(backend_url: str) -> None:
    """When the storage is closed, its streams end instead of waiting for a hint that never comes."""
    storage = await lash.open(backend_url)
    live = Live(lambda: storage, Rendered())
    stream = live.stream(PAGE, "t")
    await pieces(stream, 2)
    await storage.close()
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(StopAsyncIteration):
            while True:
                await anext(stream)


def test_rendering_has_a_share_of_the_event_loop() -> None:
    """After a round the renderer rests nine times as long as the round took, and at least a fifth of a second."""
    assert [pause_after(took) for took in (0.0, 0.02, 0.1, 1.0)] == pytest.approx([0.2, 0.2, 0.9, 9.0])


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_twenty_streams_cost_as_much_as_their_pages(storage: Storage) -> None:
    """Twenty visitors of four pages cause the reads of four pages in each round, and rounds follow after a pause."""
    await fill(storage, 2)
    calls: list[str] = []
    reads = {path: await _reads(storage, path) for path in STREAMED}
    live = Live(lambda: storage, _renderer(cast("Storage", Counted(storage, calls))))
    streams = [live.stream(Watched(path, (), may_act=False), "t") for path in STREAMED for _ in range(5)]
    readers = [asyncio.create_task(_drain(stream)) for stream in streams]
    began = time.monotonic()
    try:
        # A busy worker: a hint in every iteration of the event loop.
        while live.rounds < 4:
            storage.hints.notify()
            await asyncio.sleep(0)
        took_s = time.monotonic() - began
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    # The round in which the test ended has begun, and may have read.
    assert sum(reads.values()) * 3 <= len(calls) <= sum(reads.values()) * 4
    assert live.renders <= len(STREAMED) * 4
    assert (live.rounds - 1) * pause_after(0) <= took_s


async def _drain(stream: AsyncGenerator[str, None]) -> None:
    async with contextlib.aclosing(stream):
        async for _ in stream:
            pass


async def _reads(storage: Storage, path: str) -> int:
    calls: list[str] = []
    await _renderer(cast("Storage", Counted(storage, calls)))(Watched(path, (), may_act=False))
    return len(calls)


def _renderer(storage: Storage) -> Callable[[Watched], Awaitable[Pieces]]:
    async def render(watched: Watched) -> Pieces:
        page = await PAGES[watched.path](Visit(storage, dict(watched.query), watched.may_act, str))
        return {str(index): str(piece) for index, piece in enumerate(page.pieces)}

    return render
