"""Running one operation under a seam."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any

from lash.errors import LashError
from tests.proof.sweep.seam import Seam


async def run_operation(seam: Seam, work: Awaitable[object], *, cancel_at: int | None = None) -> tuple[object, int]:
    """Run an operation in its own task; return its result or error, and how often it waited."""
    waits = [0]

    async def run() -> object:
        async def whole() -> object:
            return await work

        seam.armed = True
        try:
            return await _stepped(whole(), seam, waits, cancel_at)
        finally:
            seam.armed = False

    seam.victim = asyncio.create_task(run())
    try:
        return await seam.victim, waits[0]
    except (LashError, asyncio.CancelledError) as error:
        return error, waits[0]


@types.coroutine
def _stepped(
    work: Coroutine[Any, Any, object], seam: Seam, waits: list[int], cancel_at: int | None
) -> Generator[Any, Any, object]:
    """Run a coroutine, count what it waits for, and have its task cancelled at one of these moments."""
    error: BaseException | None = None
    while True:
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value
        if waits[0] == cancel_at:
            assert seam.victim is not None
            seam.victim.cancel()
        waits[0] += not seam.looking
        error = None
        try:
            yield awaited
        except BaseException as raised:  # noqa: BLE001 (it is for the coroutine)
            error = raised
