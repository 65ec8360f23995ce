"""Workers whose steps leave lines in a file that no database keeps: each of them must be there once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import lash
from tests.proof.faults.chats import PATIENCE_S, Troubles
from tests.runtime.worker_kit import until

_OPTIONS: Final = lash.WorkerOptions(poll_s=0.1, lease_ttl_s=60, sessions=4, processes=16)
"""The lease outlasts every outage of these tests; two workers share the work."""
SESSIONS: Final = ("a", "b", "c", "d")
_PAUSE_S: Final = 0.02
_UNIT_S: Final = 0.03
"""How long an effect takes: long enough that outages begin while some are under way."""


class Ledger:
    """A file to which effects append, one line each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    async def append(self, line: str) -> str:
        """Do something that must not be repeated, with time for the database to go away before and after it."""
        await asyncio.sleep(_UNIT_S)
        await asyncio.to_thread(self._write, line)
        await asyncio.sleep(_UNIT_S)
        return line

    def _write(self, line: str) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())
            os.fsync(file.fileno())

    def lines(self) -> Counter[str]:
        return Counter(self._path.read_text().splitlines())


class Firm:
    """Two applications with workers on one storage, and what their sessions and processes must have done."""

    def __init__(self, url: str, ledger: Ledger, troubles: Troubles) -> None:
        self.ledger = ledger
        self.troubles = troubles
        self.apps = [self._app(url) for _ in range(2)]
        self.sent: list[str] = []

    def _app(self, url: str) -> lash.App:
        app = lash.App(url, options=_OPTIONS, hooks=[self.troubles])
        write = self.ledger.append

        @app.process
        async def errand(ctx: lash.Context, text: str) -> str:
            await ctx.step("out", write, f"{text} out")
            await ctx.sleep(_UNIT_S)
            await ctx.options(once=True).step("paid", write, f"{text} paid")
            return await ctx.step("home", write, f"{text} home")

        @app.agent
        async def clerk(turn: lash.Turn) -> str:
            first = await turn.step("read", write, f"{turn.text} read")
            await turn.start(errand, text=turn.text)
            second, _ = await turn.gather(
                turn.options(once=True).step("sign", write, f"{turn.text} sign"),
                turn.step("copy", write, f"{turn.text} copy"),
            )
            return f"{first}, {second}"

        return app

    async def send(self, session_id: str, enough: asyncio.Event) -> None:
        """Send numbered messages and wait a little after each."""
        number = 0
        while not enough.is_set():
            await self._send_until_acknowledged(session_id, f"{session_id}.{number}")
            number += 1
            await asyncio.sleep(4 * _UNIT_S)

    async def _send_until_acknowledged(self, session_id: str, text: str) -> None:
        """Retry a message even if no more are wanted: a send that failed may still have been committed."""
        while True:
            try:
                await self.apps[0].session(session_id).send(text, key=text)
            except (lash.StoreUnavailable, lash.StorageFailure):
                await asyncio.sleep(_PAUSE_S)
            else:
                self.sent.append(text)
                return

    async def finished(self) -> None:
        """Wait until the work of every message is done."""
        await until(self._is_finished, PATIENCE_S)

    async def _is_finished(self) -> bool:
        storage = self.apps[0].storage
        try:
            running = await storage.processes.list(lash.ProcessFilter(status=lash.ProcessStatus.RUNNING), limit=1)
            queued = [await storage.queue.list(name, limit=1) for name in {text.split(".")[0] for text in self.sent}]
        except (lash.StoreUnavailable, lash.StorageFailure):
            return False
        return len(self.ledger.lines()) >= len(self.expected()) and not running.processes and not any(queued)

    def expected(self) -> Counter[str]:
        """Return every line that the messages must have left, once."""
        return Counter(f"{text} {act}" for text in self.sent for act in ("read", "sign", "copy", "out", "paid", "home"))

    async def assert_all_done_once(self) -> None:
        """Check that no effect was repeated, no message died, and every process succeeded."""
        storage = self.apps[0].storage
        lines, expected = self.ledger.lines(), self.expected()
        assert lines == expected, f"too many: {lines - expected}; missing: {expected - lines}"
        assert await storage.queue.dead() == ()
        failed = await storage.processes.list(lash.ProcessFilter(status=lash.ProcessStatus.FAILED), limit=1)
        assert failed.processes == ()
        assert self.troubles.heard["worker.failed"] == self.troubles.heard["turn.buried"] == 0
        assert self.troubles.has_noticed()


async def worked_through(firm: Firm, trouble: Callable[[], Awaitable[None]]) -> None:
    """Let messages come in while the servers are in trouble, and check the work when it is done."""
    enough = asyncio.Event()
    async with AsyncExitStack() as stack:
        for app in firm.apps:
            await stack.enter_async_context(app)
        async with asyncio.TaskGroup() as group:
            for name in SESSIONS:
                group.create_task(firm.send(name, enough))
            await trouble()
            enough.set()
        await firm.finished()
        await firm.assert_all_done_once()


def has(firm: Firm, count: int) -> bool:
    """Return whether so many effects have happened."""
    return len(firm.ledger.lines()) >= count
