"""Runs work on large bytes outside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

LARGE: Final = 1024 * 1024
"""From this length on, hashing and compressing take longer than the switch to a thread."""


async def off_loop(content: object, work: Callable[[], T]) -> T:
    """Do the work, in a thread if the content is large."""
    if isinstance(content, bytes) and len(content) >= LARGE:
        return await asyncio.to_thread(work)
    return work()
