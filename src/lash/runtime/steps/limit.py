"""Limits on steps: a step starts when the rate of its limit permits, over all workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from lash.errors import UnknownDefinition
from lash.model.effect import Step
from lash.model.limit import Rate, Reservation
from lash.model.value import JSON
from lash.runtime.outage import HeldLease
from lash.stores.limit import LimitStore

if TYPE_CHECKING:
    from lash.runtime.steps.journal import Journal, StepOptions

_SHORT_MS: Final = 250
"""Shorter waits are slept through: parking and resuming a run takes about five statements."""


class Limiter:
    """Lets the steps of one run start when their limits permit.

    A run that would wait for long is parked until the moment that it has reserved, and holds no slot. The reservation
    is recorded before the parking, and its use after it, so no reservation is used twice: a step that is repeated
    after a failure or a crash reserves again.
    """

    def __init__(self, store: LimitStore, rates: Mapping[str, Rate], lease: HeldLease) -> None:
        self._store = store
        self._rates = rates
        self._lease = lease
        self.until: Callable[[int, str], Awaitable[None]] | None = None
        """Returns at a moment of the storage, or parks the run until then; the text is the name of the limit."""
        self.slot_yielded: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """Entered while a step waits in memory."""

    def rate(self, name: str) -> Rate:
        """Return the rate of a declared limit; raise UnknownDefinition for an unknown name."""
        found = self._rates.get(name)
        if found is None:
            raise UnknownDefinition("limit", name, ", ".join(sorted(self._rates)))
        return found

    async def admit(self, journal: Journal, step: str, options: StepOptions) -> None:
        """Return when a step may start; park the run if it has to wait for long."""
        # The name of the limit is not part of it: code that changes while a step waits may name another.
        command = Step(name="limit", input=None)
        key = ""
        for number in itertools.count(1):
            key = f"{step}:limit#{number}"
            known = journal.peek(key, command)
            if known is None:
                break
            if journal.peek(f"{key}:used", command) is None:
                await self._use(journal, key, command, known.outcome, options)
                return
        reserved = await self._reserve(options)
        if reserved.wait_ms <= _SHORT_MS or self.until is None or not journal.lines.is_own:
            await self._sleep(reserved)
            return
        outcome: JSON = {"at_ms": reserved.at_ms}

        async def body() -> JSON:
            return outcome

        await journal.recorded(key, command, body)
        await self._use(journal, key, command, outcome, options)

    async def wait(self, options: StepOptions) -> None:
        """Return when a step may be tried again; it waits in memory, as it does between its attempts."""
        if options.limit is not None:
            await self._sleep(await self._reserve(options))

    async def _use(self, journal: Journal, key: str, command: Step, outcome: JSON, options: StepOptions) -> None:
        """Wait for a reserved moment, and record that it is used."""
        at_ms = outcome.get("at_ms") if isinstance(outcome, dict) else 0
        assert self.until is not None, "a reservation is recorded by runs that can be parked"
        await self.until(at_ms if isinstance(at_ms, int) else 0, options.limit or "")
        await journal.recorded(f"{key}:used", command, _nothing)

    async def _reserve(self, options: StepOptions) -> Reservation:
        name = options.limit or ""
        doing = f"a reservation under limit {name!r}"
        return await self._lease.bridge(doing, self._store.reserve, name, options.limit_key, rate=self.rate(name))

    async def _sleep(self, reserved: Reservation) -> None:
        if reserved.wait_ms:
            with self.slot_yielded():
                await asyncio.sleep(reserved.wait_ms / 1_000)


async def _nothing() -> JSON:
    return None
