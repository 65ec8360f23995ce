"""Combines writes of many callers into few statements, without a timer.

At most two statements are in flight at a time. Items that arrive meanwhile wait, and all of them share the next
statement. So batches grow with the load: a lone caller is sent at once, and a hundred callers share a few statements.

A statement may wait for a lock. After 50 ms without an answer it no longer counts, and waiting items go beside it.
If a statement fails, its items are sent again one by one, so that each caller gets the outcome of its own item. Only an
item that may already be written and must not be written twice is not sent again; its caller gets the error.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from lash.errors import StorageFailure, StoreUnavailable

_MAX_IN_FLIGHT: Final = 2
"""How many statements are in flight before items wait: one runs on the server while the other is on its way."""
_ALONE_IN_A_ROW: Final = 4
"""After so many items in a row without another one beside them, the next is sent without waiting for others."""
_STUCK_S: Final = 0.05
"""A statement without an answer for this long waits for a lock; it no longer holds up the others."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Send: TypeAlias = Callable[[Mapping[Hashable, Item]], Awaitable[Mapping[Hashable, Answer]]]
"""Sends items in one statement, by key, and returns their answers by key; an item without an answer was refused."""


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Item, Answer]):
    """An item that waits for a statement, and the caller's future."""

    key: Hashable
    item: Item
    future: asyncio.Future[Answer | None]
    serial_key: Hashable


class StatementBatcher(Generic[Item, Answer]):
    """Sends items in shared statements. Each item is written whole or not at all; a lone item is sent at once.

    Items of one key never share a statement. Items of one serial key may, and a serial key has one statement in flight.
    ``is_repeatable`` says whether an item may be sent again after its answer was lost; all may by default. With
    ``gather``, callers of the same event loop iteration share the first statement too; without it, an item that waits
    for a lock holds up fewer of them.
    """

    def __init__(
        self,
        send: Send[Item, Answer],
        *,
        limit: int,
        is_repeatable: Callable[[Item], bool] = lambda _: True,
        gather: bool = True,
    ) -> None:
        self._send = send
        self._limit = limit
        self._is_repeatable = is_repeatable
        self._gathers = gather
        self._waiting: deque[_Waiting[Item, Answer]] = deque()
        self._is_gathering = False
        self._is_starting = False
        self._alone = 0
        """How many items in a row came while no other one waited or was in flight."""
        self._in_flight: dict[object, float] = {}
        self._busy: Counter[Hashable] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stuck_timer: asyncio.TimerHandle | None = None

    async def submit(self, key: Hashable, item: Item, serial_key: Hashable = None) -> Answer | None:
        """Return the answer for one item, None if it was refused; raise the error of its statement."""
        loop = asyncio.get_running_loop()
        self._alone = 0 if self._is_gathering or self._in_flight else self._alone + 1
        has_gathered = False
        if not self._is_gathering and not self._waiting and self._has_room(loop):
            if self._gathers and self._alone < _ALONE_IN_A_ROW:
                await self._gather(loop)
                has_gathered = True
            if not self._waiting and serial_key not in self._busy:
                return (await self._send_items({key: item}, loop, serial_key)).get(key)
        future: asyncio.Future[Answer | None] = loop.create_future()
        waiting = _Waiting(key, item, future, serial_key)
        # The caller that let others add their items came before them.
        (self._waiting.appendleft if has_gathered else self._waiting.append)(waiting)
        self._start_next(loop)
        return await future

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let other callers of this event loop iteration add their items."""
        self._is_gathering = True
        try:
            await asyncio.sleep(0)
        finally:
            self._is_gathering = False
            self._start_next(loop)

    def _has_room(self, loop: asyncio.AbstractEventLoop) -> bool:
        if not self._in_flight:
            return True
        now = loop.time()
        return sum(now - began < _STUCK_S for began in self._in_flight.values()) < _MAX_IN_FLIGHT

    async def _send_items(
        self, items: Mapping[Hashable, Item], loop: asyncio.AbstractEventLoop, *serial_keys: Hashable
    ) -> Mapping[Hashable, Answer]:
        statement, busy = object(), {each for each in serial_keys if each is not None}
        self._in_flight[statement] = loop.time()
        if busy:
            self._busy.update(busy)
        # There may be room for another statement.
        self._start_next(loop)
        try:
            return await self._send(items)
        finally:
            del self._in_flight[statement]
            if busy:
                self._busy -= Counter(busy)
            self._start_next(loop)

    def _start_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send waiting items if there is room; otherwise check again when the statements in flight may be stuck."""
        if self._waiting and not self._is_gathering and not self._is_starting and self._has_room(loop):
            # One task is enough: it takes as many items as fit, and calls this again once it is in flight.
            self._is_starting = True
            task = loop.create_task(self._send_next(loop), name="lash-batcher")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._waiting and self._stuck_timer is None:
            self._stuck_timer = loop.call_later(_STUCK_S, self._check_stuck, loop)

    def _check_stuck(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stuck_timer = None
        self._start_next(loop)

    async def _send_next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_starting = False
        waiting = self._take_next()
        if not waiting:
            return
        try:
            await self._deliver(waiting, loop)
        finally:
            # However this task ended, no caller is left waiting.
            for each in waiting.values():
                each.future.cancel()

    def _take_next(self) -> dict[Hashable, _Waiting[Item, Answer]]:
        """Take the oldest items, one of each key, without those whose callers were cancelled."""
        chosen: dict[Hashable, _Waiting[Item, Answer]] = {}
        later: list[_Waiting[Item, Answer]] = []
        while self._waiting and len(chosen) < self._limit:
            waiting = self._waiting.popleft()
            if waiting.future.done():
                continue
            if waiting.key in chosen or waiting.serial_key in self._busy:
                later.append(waiting)
            else:
                chosen[waiting.key] = waiting
        self._waiting.extendleft(reversed(later))
        return chosen

    async def _deliver(
        self,
        waiting: dict[Hashable, _Waiting[Item, Answer]],
        loop: asyncio.AbstractEventLoop,
        *,
        may_be_applied: bool = False,
    ) -> None:
        """Send the items in one statement and give each caller its answer; an earlier one may have been applied."""
        try:
            serial_keys = (each.serial_key for each in waiting.values())
            answers = await self._send_items({key: each.item for key, each in waiting.items()}, loop, *serial_keys)
        except Exception as error:  # noqa: BLE001 (whatever it is, the callers must get it)
            if may_be_applied and isinstance(error, StoreUnavailable | StorageFailure):
                error.outcome_unknown = True
            await self._deliver_failed(waiting, error, loop)
            return
        for key, each in waiting.items():
            if not each.future.done():
                each.future.set_result(answers.get(key))

    async def _deliver_failed(
        self, waiting: dict[Hashable, _Waiting[Item, Answer]], error: Exception, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Send each item again alone to find the one that failed, unless it may be written and is not repeatable."""
        is_unknown = isinstance(error, StoreUnavailable | StorageFailure) and error.outcome_unknown
        again: dict[Hashable, _Waiting[Item, Answer]] = {}
        for key, each in waiting.items():
            if len(waiting) > 1 and (not is_unknown or self._is_repeatable(each.item)):
                again[key] = each
            elif not each.future.done():
                # Each caller raises its own copy: a shared exception would collect the tracebacks of all.
                each.future.set_exception(copy.copy(error))
        # All at the same time: an item that waits for a lock must not delay the others.
        one_by_one = (self._deliver({key: each}, loop, may_be_applied=is_unknown) for key, each in again.items())
        await asyncio.gather(*one_by_one)
