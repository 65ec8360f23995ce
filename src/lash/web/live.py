"""The stream: pieces of pages, sent again when they have changed.

One task renders for all streams of a process. It waits for a hint, renders each page that is open once, however many
visitors have it open, and each stream sends the pieces that differ from what it sent before.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, NamedTuple

from lash.errors import LashError, StorageClosed
from lash.stores.storage import Storage
from lash.web.forms import personal

MOST_STREAMS: Final = 200
_QUIET_S: Final = 5.0
"""How long the renderer waits for a hint; what changes without one, such as a deadline, is seen by then."""
_LEAST_PAUSE_S: Final = 0.2
"""How long hints are collected before a render."""
_SHARE: Final = 0.1
"""The part of the event loop that rendering may take."""
_KEEP_ALIVE_S: Final = 15.0
_AGE: Final = re.compile("(?<=>)[^<]*(?=</time>)")
"""The text of an age. The page keeps it current, so a piece in which only ages changed is not sent again."""


class Watched(NamedTuple):
    """A page as streams share it: the page, its parameters, and whether its visitors may act."""

    path: str
    query: tuple[tuple[str, str], ...]
    may_act: bool


Pieces = dict[str, str]
"""HTML by the id of the piece."""


def pause_after(took_s: float) -> float:
    """Return how long the renderer rests after a round, so that it takes no more than its share of the event loop."""
    return max(_LEAST_PAUSE_S, took_s / _SHARE - took_s)


class Live:
    """Renders the pages that are open in any browser."""

    def __init__(self, storage: Callable[[], Storage], render: Callable[[Watched], Awaitable[Pieces]]) -> None:
        self._storage = storage
        self._render = render
        self._open: dict[Watched, _Shared] = {}
        self._streams = 0
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.renders = 0
        """How many pages were rendered so far."""
        self.rounds = 0
        """How often the pages that are open were rendered, each once."""

    @property
    def is_full(self) -> bool:
        return self._streams >= MOST_STREAMS

    async def stream(self, watched: Watched, token: str) -> AsyncGenerator[str, None]:
        """Yield the events of one stream: all pieces at first, then the changed ones."""
        shared = self._open.setdefault(watched, _Shared())
        shared.streams += 1
        self._streams += 1
        sent: Pieces = {}
        try:
            self._begin()
            yield "retry: 1000\n\n"
            while not shared.ended:
                for name, html in shared.pieces.items():
                    lasting = _AGE.sub("", html)
                    if sent.get(name) != lasting:
                        sent[name] = lasting
                        yield _event(personal(html, token))
                if not await shared.changed(_KEEP_ALIVE_S):
                    yield ": still here\n\n"
        finally:
            self._leave(watched, shared)

    def end(self) -> None:
        """End every stream; the browsers open new ones while the console is served."""
        for shared in self._open.values():
            shared.end()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._wake = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())
        else:
            # The page may be new to the renderer.
            self._wake.set()

    def _leave(self, watched: Watched, shared: _Shared) -> None:
        shared.streams -= 1
        self._streams -= 1
        if not shared.streams and self._open.get(watched) is shared:
            del self._open[watched]
        if not self._open and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            with self._storage().hints.listen(everything=True) as hints:
                while True:
                    began = time.monotonic()
                    self._wake.clear()
                    self.rounds += 1
                    await self._render_all()
                    await asyncio.sleep(pause_after(time.monotonic() - began))
                    if not self._wake.is_set():
                        await self._next(hints.wait(_QUIET_S))
        except StorageClosed:
            self.end()

    async def _next(self, hint: Awaitable[object]) -> None:
        """Return at a hint, after the quiet time, or when a page was opened."""
        tasks = {asyncio.ensure_future(hint), asyncio.ensure_future(self._wake.wait())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _render_all(self) -> None:
        for watched, shared in list(self._open.items()):
            try:
                shared.publish(await self._render(watched))
            except StorageClosed:
                raise
            except LashError:
                # The thing is gone or the database is away for a moment; the page shows what it showed.
                continue
            self.renders += 1


class _Shared:
    """The newest pieces of one page, for all its streams."""

    def __init__(self) -> None:
        self.pieces: Pieces = {}
        self.streams = 0
        self.ended = False
        self._news = asyncio.Event()

    def publish(self, pieces: Pieces) -> None:
        if pieces != self.pieces:
            self.pieces = pieces
            self._announce()

    def end(self) -> None:
        self.ended = True
        self._announce()

    async def changed(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _announce(self) -> None:
        # Streams that wait now are woken; a stream that reads later sees the new pieces.
        news, self._news = self._news, asyncio.Event()
        news.set()


def _event(html: str) -> str:
    """Return HTML as one event. A line break ends a line of an event, so each line is its own field."""
    lines = "\n".join(f"data: {each}" for each in html.split("\n"))
    return f"event: piece\n{lines}\n\n"
