"""Writes that end before their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def settled(write: Coroutine[Any, Any, T]) -> T:
    """Return the result of a write; a cancelled caller gets CancelledError once the write has ended.

    Without it, a cancelled caller would not know whether the write was made.
    """
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            # Retrieved here, so that the event loop does not report it: the caller gets CancelledError.
            task.exception()
        raise
