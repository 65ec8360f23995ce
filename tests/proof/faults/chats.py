"""An application with a worker, whose users send messages while its storage fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import lash
from lash.runtime.hooks import Attributes, Hook
from tests.proof.faults.disk import EFFORT

PATIENCE_S: Final = 90 * EFFORT
_PAUSE_S: Final = 0.02


class Troubles(Hook):
    """Counts the errors that a worker saw."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()

    def note(self, kind: str, attributes: Attributes) -> None:
        self.heard[kind] += 1

    def has_noticed(self) -> bool:
        """Return whether a run waited for the database, or a poll failed because no run was active."""
        return self.heard["storage.away"] + self.heard["worker.trouble"] > 0


def make_app(url: str, troubles: Troubles) -> lash.App:
    """Return an application that answers each message with two steps and a process that wakes no session."""
    options = lash.WorkerOptions(poll_s=0.1, lease_ttl_s=10)
    app = lash.App(url, options=options, hooks=[troubles])

    @app.process
    async def note(ctx: lash.Context, text: str) -> str:
        await ctx.sleep(0.01)
        return await ctx.step("kept", _echo, text)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        first = await turn.step("first", _echo, turn.text)
        await turn.start(note, text=first)
        return "re: " + await turn.step("second", _echo, first)

    return app


async def _echo(text: str) -> str:
    await asyncio.sleep(0)
    return text


async def talk(app: lash.App, session_id: str, count: int, progress: list[str]) -> None:
    """Send messages, each retried until it is acknowledged."""
    for number in range(count):
        text = f"{session_id} {number}"
        while True:
            try:
                await app.session(session_id).send(text, key=text)
                break
            except (lash.StoreUnavailable, lash.StorageFailure):
                await asyncio.sleep(_PAUSE_S)
        progress.append(text)


async def said(app: lash.App, session_id: str, count: int) -> list[str]:
    """Wait until this many messages were answered, and return the whole conversation."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                texts = [lash.text_of(message) for message in await app.session(session_id).messages()]
                if len(texts) >= 2 * count:
                    return texts
            except (lash.StoreUnavailable, lash.StorageFailure, lash.SessionNotFound):
                pass
            await asyncio.sleep(_PAUSE_S)


def expected(session_id: str, count: int) -> list[str]:
    """Return the expected conversation: every message once, in order, each with its answer."""
    return [text for number in range(count) for text in (f"{session_id} {number}", f"re: {session_id} {number}")]
