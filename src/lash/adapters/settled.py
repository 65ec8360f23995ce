"""Writes that end before their caller is cancelled."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def settled(write: Coroutine[Any, Any, T], *, starts_here: bool = False) -> T:
    """Return the result of a write; a cancelled caller gets CancelledError once the write has ended.

    Without it, a cancelled caller would not know whether the write was made. With ``starts_here``, the write starts in
    the task of the caller, and gets a task of its own when it has to wait: a short write to SQLite ends before that.
    Such a write must not depend on its task, as `asyncio.timeout` does.
    """
    if starts_here:
        try:
            waits_for = write.send(None)
        except StopIteration as done:
            value: T = done.value
            return value
        write = _awaited(write, waits_for)
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


async def _awaited(write: Coroutine[Any, Any, T], waits_for: object) -> T:
    return await _continued(write, waits_for)


@types.coroutine
def _continued(write: Coroutine[Any, Any, T], waits_for: object) -> Generator[object, Any, T]:
    """Run the rest of a coroutine that has started and waits for a future."""
    resume: Callable[[Any], object]
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:  # noqa: BLE001 (the coroutine decides what to do with it)
            resume, argument = write.throw, error
        else:
            resume, argument = write.send, sent
        try:
            waits_for = resume(argument)
        except StopIteration as done:
            value: T = done.value
            return value
