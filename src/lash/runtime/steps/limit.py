"""Limits on steps, turns and processes: they start when the rate permits and a place is free, over all workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from lash.errors import UnknownDefinition
from lash.model.effect import Step
from lash.model.lease import LeaseFence
from lash.model.limit import Limit, Rate, Reservation
from lash.model.scope import scope_id
from lash.model.value import JSON
from lash.runtime.errors import Suspended
from lash.runtime.outage import HeldLease
from lash.stores.limit import LimitStore

if TYPE_CHECKING:
    from lash.runtime.steps.journal import Journal

RUN: Final = "run"
"""The step that stands for a whole turn or process; names of steps have a number or a key behind them."""
_SHORT_MS: Final = 250
"""Shorter waits are slept through: parking and resuming a run takes about five statements."""


_RESERVED: Final = Step(name="limit", input=None)
"""A reservation, and its use. The name of the limit is not part of it: code that changes meanwhile may name another."""


class LimitOf(NamedTuple):
    """The limit of a step, or of a whole turn or process, and the key in it."""

    name: str
    key: str = ""


class Limiter:
    """Lets the steps of one run, and the run itself, start when their limits permit.

    A run that would wait for long is parked, and holds no slot: until the moment that it has reserved, or until it is
    offered a place. A reservation is recorded before the parking, and its use after it, so no reservation is used
    twice: a step that is repeated after a failure or a crash reserves again. A place is held by the lease of the run,
    and needs no record.
    """

    def __init__(self, store: LimitStore, limits: Mapping[str, Limit], lease: HeldLease, fence: LeaseFence) -> None:
        self._store = store
        self._limits = limits
        self._lease = lease
        self._fence = fence
        self._of_run: LimitOf | None = None
        self.until: Callable[[int, str], Awaitable[None]] | None = None
        """Returns at a moment of the storage, or parks the run until then; the text is the name of the limit."""
        self.block: Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]] | None = None
        """Parks the run until it is woken, or returns once the function does; the text is the name of the limit."""
        self.slot_yielded: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """Entered while a step waits in memory."""

    def find(self, name: str) -> Limit:
        """Return a declared limit; raise UnknownDefinition for an unknown name."""
        found = self._limits.get(name)
        if found is None:
            raise UnknownDefinition("limit", name, ", ".join(sorted(self._limits)))
        return found

    @contextlib.asynccontextmanager
    async def admitted(self, journal: Journal, step: str, of: LimitOf) -> AsyncIterator[None]:
        """Begin new work when its limit permits, and hold a place during the block if the limit has places.

        A step under the limit of its whole run needs no place beside that of the run.
        """
        limit = self.find(of.name)
        if of == self._of_run:
            limit = Limit(rate=limit.rate)
        async with self._admitted(journal, step, of, limit):
            yield

    @contextlib.asynccontextmanager
    async def run_admitted(self, journal: Journal, of: LimitOf) -> AsyncIterator[None]:
        """Begin or resume a run when its limit permits, and hold a place during the block if the limit has places.

        The rate counts the first start of the turn or process. A run that is parked gives back its place.
        """
        async with self._admitted(journal, RUN, of, self.find(of.name), once=True):
            self._of_run = of
            yield

    async def leave_run(self, journal: Journal, of: LimitOf) -> None:
        """Leave the line in which a whole turn or process waits, if it does."""
        if self.find(of.name).concurrency is not None:
            await self._leave(of, _place_of(journal, RUN))

    async def wait(self, of: LimitOf) -> None:
        """Return when a step may be tried again; it waits in memory, as it does between its attempts."""
        rate = self.find(of.name).rate
        if rate is not None:
            await self._sleep(await self._reserve(of, rate))

    @contextlib.asynccontextmanager
    async def _admitted(
        self, journal: Journal, step: str, of: LimitOf, limit: Limit, *, once: bool = False
    ) -> AsyncIterator[None]:
        """Wait for the moment first, and then for a place, so that no place is held before the moment."""
        reserved, place = None, _place_of(journal, step)
        try:
            await journal.begin_new()
            if limit.rate is not None:
                # A run that waits for a place, too, comes back here: the moment is kept until it has one.
                kept = once or limit.concurrency is not None
                reserved = await self._moment(journal, step, of, limit.rate, kept=kept, once=once)
            if limit.concurrency is not None:
                await self._take(journal, of, place, limit.concurrency)
            if reserved is not None:
                await journal.recorded(f"{reserved}:used", _RESERVED, _nothing)
        except Suspended:
            # The run is parked, and keeps its place in the line.
            raise
        except BaseException:
            if limit.concurrency is not None:
                await self._leave(of, place)
            raise
        try:
            yield
        finally:
            if limit.concurrency is not None:
                await self._leave(of, place)

    async def _moment(
        self, journal: Journal, step: str, of: LimitOf, rate: Rate, *, kept: bool, once: bool
    ) -> str | None:
        """Return when the rate permits a start; park the run if that is long.

        Return the key of the reservation whose use is to be recorded, if it was recorded. With ``once``, one that is
        used already is enough.
        """
        key = ""
        for number in itertools.count(1):
            key = f"{step}:limit#{number}"
            known = journal.peek(key, _RESERVED)
            if known is None:
                break
            is_used = journal.peek(f"{key}:used", _RESERVED) is not None
            if is_used and once:
                return None
            if not is_used:
                await self._until(known.outcome, of)
                return key
        reserved = await self._reserve(of, rate)
        if self.until is None or not journal.lines.is_own or (reserved.wait_ms <= _SHORT_MS and not kept):
            await self._sleep(reserved)
            return None
        outcome: JSON = {"at_ms": reserved.at_ms}

        async def body() -> JSON:
            return outcome

        await journal.recorded(key, _RESERVED, body)
        await self._until(outcome, of)
        return key

    async def _until(self, outcome: JSON, of: LimitOf) -> None:
        """Wait for a reserved moment."""
        at_ms = outcome.get("at_ms") if isinstance(outcome, dict) else 0
        assert self.until is not None, "a reservation is recorded by runs that can be parked"
        await self.until(at_ms if isinstance(at_ms, int) else 0, of.name)

    async def _reserve(self, of: LimitOf, rate: Rate) -> Reservation:
        doing = f"a reservation under limit {of.name!r}"
        return await self._lease.bridge(doing, self._store.reserve, of.name, of.key, rate=rate)

    async def _sleep(self, reserved: Reservation) -> None:
        if reserved.wait_ms:
            with self.slot_yielded():
                await asyncio.sleep(reserved.wait_ms / 1_000)

    async def _take(self, journal: Journal, of: LimitOf, place: str, concurrency: int) -> None:
        """Return once a place is held; park the run until it is offered one, or wait in memory if it cannot park."""
        doing = f"a place under limit {of.name!r}"
        take = partial(self._store.take, *of, concurrency=concurrency, fence=self._fence, step=place)
        offered = partial(self._store.offered, *of, fence=self._fence, step=place)
        while not await self._lease.bridge(doing, take):
            if self.block is not None and journal.lines.is_own:
                await self.block(of.name, offered)
            else:
                with self.slot_yielded():
                    await self._lease.bridge(doing, offered)

    async def _leave(self, of: LimitOf, place: str) -> None:
        doing = f"giving back a place under limit {of.name!r}"
        await self._lease.bridge(doing, self._store.leave, *of, fence=self._fence, step=place)


def _place_of(journal: Journal, step: str) -> str:
    return f"{scope_id(journal.scope)} {step}"


async def _nothing() -> JSON:
    return None
