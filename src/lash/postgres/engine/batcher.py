"""Writes of many callers in few statements: what waits while some are under way shares the next one."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from lash.errors import StorageFailure, StoreUnavailable

_LANES: Final = 2
"""How many statements are under way before others wait to be sent together."""
_LONELY: Final = 4
"""After so many that met no other, the next one does not wait to see whether others come."""
_STUCK_S: Final = 0.05
"""A statement without an answer for so long waits for a lock that somebody holds; others do not wait for it."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Send: TypeAlias = Callable[[Mapping[Hashable, Item]], Awaitable[Mapping[Hashable, Answer]]]
"""Sends some items in one statement, by their keys, and returns the answers; an item without one was refused."""


class Group(Generic[Item, Answer]):
    """Sends items, each of which is written whole or not at all. One that meets no other waits for nobody.

    Items of one key never share a statement. ``is_repeatable`` says of an item whether it is harmless to send it again
    after its answer was lost; all are by default. With ``gather`` those who ask at the same moment share the first
    statement too; without it, one who waits for a lock holds up fewer of them.
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
        self._gathering = False
        self._beginning = False
        self._alone = 0
        """How many have asked in a row while nobody else did."""
        self._under_way: dict[object, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None

    async def ask(self, key: Hashable, item: Item) -> Answer | None:
        """Return the answer for one item, None if it was refused; raise what stood in the way of asking."""
        loop = asyncio.get_running_loop()
        self._alone = 0 if self._gathering or self._under_way else self._alone + 1
        if not self._gathering and not self._waiting and self._has_free_lane(loop):
            if self._gathers and self._alone < _LONELY:
                await self._gather(loop)
            if not self._waiting:
                return (await self._send_in_lane({key: item}, loop)).get(key)
        future: asyncio.Future[Answer | None] = loop.create_future()
        self._waiting.append((key, item, future))
        self._go_on(loop)
        return await future

    async def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let those who are about to ask at this very moment come along."""
        self._gathering = True
        try:
            await asyncio.sleep(0)
        finally:
            self._gathering = False
            self._go_on(loop)

    def _has_free_lane(self, loop: asyncio.AbstractEventLoop) -> bool:
        if not self._under_way:
            return True
        now = loop.time()
        return sum(now - began < _STUCK_S for began in self._under_way.values()) < _LANES

    async def _send_in_lane(
        self, items: Mapping[Hashable, Item], loop: asyncio.AbstractEventLoop
    ) -> Mapping[Hashable, Answer]:
        statement = object()
        self._under_way[statement] = loop.time()
        # Another lane may be free for those who wait.
        self._go_on(loop)
        try:
            return await self._send(items)
        finally:
            del self._under_way[statement]
            self._go_on(loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with those that wait if there is room, and look again when statements may be stuck."""
        if self._waiting and not self._gathering and not self._beginning and self._has_free_lane(loop):
            # One is enough: it takes as many as fit, and comes here again when it has its lane.
            self._beginning = True
            task = loop.create_task(self._send_next(loop), name="lash-group")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._waiting and self._alarm is None:
            self._alarm = loop.call_later(_STUCK_S, self._look_again, loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        self._go_on(loop)

    async def _send_next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beginning = False
        waiting = self._next()
        if not waiting:
            return
        try:
            await self._settle(waiting, loop)
        finally:
            # Whatever ended this, nobody is left waiting for it.
            for _, _, future in waiting.values():
                future.cancel()

    def _next(self) -> dict[Hashable, _Waiting[Item, Answer]]:
        """Take those that wait longest, one of each key, without those whose callers are gone."""
        chosen: dict[Hashable, _Waiting[Item, Answer]] = {}
        later: list[_Waiting[Item, Answer]] = []
        while self._waiting and len(chosen) < self._limit:
            waiting = self._waiting.popleft()
            if waiting[2].done():
                continue
            if waiting[0] in chosen:
                later.append(waiting)
            else:
                chosen[waiting[0]] = waiting
        self._waiting.extendleft(reversed(later))
        return chosen

    async def _settle(self, waiting: dict[Hashable, _Waiting[Item, Answer]], loop: asyncio.AbstractEventLoop) -> None:
        try:
            answers = await self._send_in_lane({key: item for key, (_, item, _) in waiting.items()}, loop)
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait must hear of it)
            await self._settle_failed(waiting, error, loop)
            return
        for key, (_, _, future) in waiting.items():
            if not future.done():
                future.set_result(answers.get(key))

    async def _settle_failed(
        self, waiting: dict[Hashable, _Waiting[Item, Answer]], error: Exception, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Find out whom an error concerns. What may have been written and cannot be repeated is not sent again."""
        is_unknown = isinstance(error, StoreUnavailable | StorageFailure) and error.outcome_unknown
        again: dict[Hashable, _Waiting[Item, Answer]] = {}
        for key, each in waiting.items():
            _, item, future = each
            if len(waiting) > 1 and (not is_unknown or self._is_repeatable(item)):
                again[key] = each
            elif not future.done():
                # Each caller raises an exception of its own: a shared one would collect all their tracebacks.
                future.set_exception(copy.copy(error))
        # At once: one that waits for a lock must not keep the others.
        await asyncio.gather(*(self._settle({key: each}, loop) for key, each in again.items()))


_Waiting: TypeAlias = tuple[Hashable, Item, asyncio.Future[Answer | None]]
