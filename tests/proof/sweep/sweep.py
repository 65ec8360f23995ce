"""The sweep: an operation is struck at one point after the other, and the result is checked."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tests.proof.sweep.bench import Bench
from tests.proof.sweep.case import Case
from tests.proof.sweep.judge import judge
from tests.proof.sweep.killer import Killer, Request
from tests.proof.sweep.learned import Learned, learn
from tests.proof.sweep.operation import run_operation
from tests.proof.sweep.points import chosen
from tests.proof.sweep.seam import Blow, Seam, Strike

G = TypeVar("G")
_POINT_LIMIT_S = 60


async def sweep(bench: Bench, case: Case[G], killer: Killer) -> None:
    """Strike at every chosen point, each from the same state; all failures are reported together."""
    learned = await learn(bench, case)
    failures: list[Exception] = []
    for point in chosen(case.name, learned):
        try:
            await asyncio.wait_for(_strike(bench, case, learned, point, killer), _POINT_LIMIT_S)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (whatever it is, it happened at this point)
            failures.append(_at_point(error, point, learned))
    if failures:
        raise ExceptionGroup(f"{case.name} on {bench.backend}", failures)


async def _strike(bench: Bench, case: Case[G], learned: Learned[G], point: Strike | int, killer: Killer) -> None:
    await bench.restore()
    if isinstance(point, Strike) and point.blow is Blow.KILL:
        request = Request(bench.url, bench.clock.now_ms(), case.name, learned.given, point)
        assert killer.kill(request) or case.elusive, "there is no such point"
        async with bench.opened(Seam()) as storage:
            await judge(bench, storage, case, learned, asyncio.CancelledError())
        return
    strike, cancel_at = (point, None) if isinstance(point, Strike) else (None, point)
    seam = Seam(strike)
    async with bench.opened(seam) as storage:
        outcome, waits = await run_operation(seam, case.call(storage, learned.given), cancel_at=cancel_at)
        assert strike is None or seam.struck or case.elusive, "there is no such point"
        # A cancelled caller gets the cancellation, unless the result had already arrived.
        assert cancel_at is None or isinstance(outcome, asyncio.CancelledError) or waits == cancel_at + 1, outcome
        await judge(bench, storage, case, learned, outcome)


def _at_point(error: BaseException, point: Strike | int, learned: Learned[G]) -> Exception:
    where = f"{point}: {learned.texts[point.number]:.200}" if isinstance(point, Strike) else f"cancel at wait {point}"
    failure = error if isinstance(error, Exception) else AssertionError(repr(error))
    failure.add_note(where)
    return failure
