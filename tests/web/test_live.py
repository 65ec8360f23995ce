"""The stream: one renderer for all open pages, and only what has changed is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import lash
from lash.stores.storage import Storage
from lash.web.forms import PLACEHOLDER
from lash.web.live import Live, Pieces, Watched
from lash.web.pages import PAGES
from lash.web.view import Visit

PATIENCE_S = 30.0
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

    async def render(watched: Watched) -> Pieces:
        page = await PAGES[watched.path](Visit(storage, dict(watched.query), watched.may_act, str))
        return {str(index): str(piece) for index, piece in enumerate(page.pieces)}

    live = Live(lambda: storage, render)
    stream = live.stream(PAGE, "t")
    await pieces(stream, 2)
    await storage.sessions.create("newcomer")
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
