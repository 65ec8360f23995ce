"""Outages of the database: calls of a run are repeated for as long as its lease can last.

A worker that has the outcome of a step, a turn or a process keeps it until the database takes it. What a call did
before its answer was lost is recognised when the call is repeated: every call of a run is idempotent under its fence,
its key or its turn id.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, ParamSpec, TypeVar

from lash.base.backoff import backoff, jitter
from lash.errors import LeaseLost
from lash.model.lease import Resource
from lash.runtime.errors import STORAGE_TROUBLE
from lash.runtime.hooks import Hooks

P = ParamSpec("P")
T = TypeVar("T")

_LONGEST_PAUSE_S: Final = 1.0
"""The longest pause between two tries: a database that is back is used within a second."""
_BEYOND: Final = 1 / 3
"""How long calls are repeated after the expiry, as a part of the lifetime.

A lease is renewed every third of its lifetime, so an outage as long as the lifetime is always survived.
"""


class Outages:
    """Reports the begin and the end of an outage once, however many runs of the worker wait for it."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._waiting = 0
        self._began_at: float | None = None

    @contextlib.contextmanager
    def waiting(self, doing: str, resource: Resource, *, at_most_s: float, error: Exception) -> Iterator[None]:
        """Surround the wait of one call for the database, which takes so many seconds at most."""
        self._begin(doing, resource, at_most_s=at_most_s, error=error)
        is_back = True
        try:
            yield
        except (*STORAGE_TROUBLE, asyncio.CancelledError):
            is_back = False
            raise
        finally:
            self._end(is_back=is_back)

    def _begin(self, doing: str, resource: Resource, *, at_most_s: float, error: Exception) -> None:
        self._waiting += 1
        if self._began_at is None:
            self._began_at = time.monotonic()
            self._hooks.note(
                "storage.away",
                waiting=f"{doing} of {resource}",
                at_most_s=round(at_most_s, 1),
                error=f"{type(error).__qualname__}: {error}",
            )

    def _end(self, *, is_back: bool) -> None:
        if is_back and self._began_at is not None:
            lasted_s = round(time.monotonic() - self._began_at, 1)
            self._hooks.note("storage.back", lasted_s=lasted_s, waiting=self._waiting)
        self._waiting -= 1
        if is_back or self._waiting == 0:
            self._began_at = None


class HeldLease:
    """The lease of one run, as its worker knows it: how old it is, and how calls under it survive an outage."""

    def __init__(
        self, resource: Resource, renew: Callable[[], Awaitable[object]], *, ttl_s: float, outages: Outages
    ) -> None:
        self._resource = resource
        self._renew = renew
        self._ttl_s = ttl_s
        self._outages = outages
        self._renewed_at = time.monotonic()
        self._given_up = asyncio.Event()
        self.called_s = 0.0
        """How many seconds calls under the lease have taken, each until its first answer."""

    @property
    def age_s(self) -> float:
        """The seconds since the lease was claimed or renewed."""
        return time.monotonic() - self._renewed_at

    @property
    def left_s(self) -> float:
        """For how many seconds calls are still repeated: until the expiry, and a third of the lifetime beyond.

        An expired lease that no other worker took can be renewed.
        """
        return self._ttl_s * (1 + _BEYOND) - self.age_s

    async def renew(self) -> None:
        """Renew the lease once; raise LeaseLost if another worker has it."""
        asked_at = time.monotonic()
        await self._renew()
        self._renewed_at = asked_at

    def give_up(self) -> None:
        """Stop repeating calls: the worker stops, or the lease is lost."""
        self._given_up.set()

    async def bridge(self, doing: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of an idempotent call, and repeat it while the database is away.

        Raises the error of the last try after `left_s`, counted from the first error, and after `give_up`. Raises
        LeaseLost if the lease was released or taken by another worker; one that only expired is renewed.
        """
        began = time.monotonic()
        try:
            return await function(*args, **kwargs)
        except (LeaseLost, *STORAGE_TROUBLE) as error:
            trouble = error
        finally:
            self.called_s += time.monotonic() - began
        call = partial(function, *args, **kwargs)
        if isinstance(trouble, LeaseLost):
            try:
                return await self._call_again(call, trouble)
            except STORAGE_TROUBLE as error:
                trouble = error
        if self._given_up.is_set() or self.left_s <= 0:
            raise trouble
        with self._outages.waiting(doing, self._resource, at_most_s=self.left_s, error=trouble):
            return await self._repeat(call, trouble, time.monotonic() + self.left_s)

    async def _repeat(self, call: Callable[[], Awaitable[T]], trouble: Exception, end: float) -> T:
        """Repeat a call until a moment, which renewals do not move: one statement may fail while others succeed."""
        failures = 0
        while True:
            pause_s = jitter(backoff(failures, longest_s=_LONGEST_PAUSE_S))
            await self._pause(min(pause_s, end - time.monotonic()))
            if self._given_up.is_set() or time.monotonic() >= end:
                raise trouble
            try:
                return await self._call(call)
            except STORAGE_TROUBLE as error:
                trouble = error
            failures += 1

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except LeaseLost as lost:
            return await self._call_again(call, lost)

    async def _call_again(self, call: Callable[[], Awaitable[T]], lost: LeaseLost) -> T:
        """Return the result of a call that lost its lease, if the lease has only expired, during an outage."""
        if lost.resource != self._resource:
            raise lost
        # This raises LeaseLost if it was released or taken.
        await self.renew()
        return await call()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._given_up.wait()
