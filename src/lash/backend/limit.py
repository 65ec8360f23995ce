"""Named limits on every backend."""

from __future__ import annotations

from typing import Final

from lash.backend.change_waiter import ChangeWaiter, Watch
from lash.backend.work import Work
from lash.base.limits import check_integer, check_limit
from lash.model.lease import LeaseFence
from lash.model.limit import LimitPlace, LimitState, Rate, Reservation
from lash.plan.limit import (
    OFFER_MS,
    UNUSED_MS,
    Woken,
    check_concurrency,
    check_name,
    check_place,
    check_rate,
    decode_limit,
    decode_place,
    decode_reservation,
    interval_us,
)
from lash.stores.hints import Hints
from lash.stores.limit import LimitRows

_WAITS: Final = "waits"
"""The state of a place that is waited for; one that is offered or gone has none."""


class Limits:
    """The limits of one storage; the contract is `lash.stores.limit.LimitStore`."""

    def __init__(self, rows: LimitRows, work: Work, changes: ChangeWaiter[Watch], hints: Hints) -> None:
        self._rows = rows
        self._work = work
        self._changes = changes
        self._hints = hints

    async def reserve(self, name: str, key: str = "", *, rate: Rate) -> Reservation:
        check_rate(rate)
        row = await self._rows.reserve(*check_name(name, key), interval_us(rate), rate.burst)
        return decode_reservation(row, rate)

    async def take(self, name: str, key: str = "", *, concurrency: int, fence: LeaseFence, step: str = "") -> bool:
        request = check_place(name, key, fence, step)
        held, woken = await self._rows.take(request, check_concurrency(concurrency), OFFER_MS)
        await self._wake(woken)
        return held

    async def leave(self, name: str, key: str = "", *, fence: LeaseFence, step: str = "") -> bool:
        left, woken = await self._rows.leave(check_place(name, key, fence, step), OFFER_MS)
        await self._wake(woken)
        return left

    async def offered(self, name: str, key: str = "", *, fence: LeaseFence, step: str = "") -> None:
        request = check_place(name, key, fence, step)
        with self._changes.watching(Watch(self._states, request.holder)) as watch:
            # A run is not offered a place between its call of ``take`` and here without a hint; this read sees it.
            while await self._states({request.holder}) and await watch.changed() == _WAITS:
                pass

    async def pass_on(self, *, limit: int = 100) -> int:
        checked, woken = await self._rows.pass_on(check_limit(limit), OFFER_MS)
        await self._wake(woken)
        return checked

    async def places(self, name: str, key: str = "", *, limit: int = 100, after: int = 0) -> tuple[LimitPlace, ...]:
        name, key = check_name(name, key)
        rows = await self._rows.places(name, key, check_limit(limit), check_integer("after", after, at_least=0))
        return tuple(decode_place(row) for row in rows)

    async def list(self, *, limit: int = 100, after: tuple[str, str] | None = None) -> tuple[LimitState, ...]:
        start = ("", "") if after is None else check_name(*after)
        return tuple(decode_limit(row) for row in await self._rows.page(check_limit(limit), start))

    async def prune(self, *, limit: int = 1_000) -> int:
        return await self._rows.prune(check_limit(limit), UNUSED_MS)

    async def _wake(self, woken: Woken) -> None:
        """Wake the runs that were offered a place; a run that waits in memory has no worker to be assigned to."""
        for process_id in woken.process_ids:
            self._hints.notify(process_id=process_id)
        if woken.sessions and len(await self._work.wake()) < woken.sessions:
            self._hints.notify()

    async def _states(self, holders: set[str]) -> dict[str, str]:
        return {row.holder: _WAITS for row in await self._rows.states(holders) if row.is_waiting}
