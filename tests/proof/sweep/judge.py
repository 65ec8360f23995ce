"""Checks what is left of a struck operation, and that the storage still works."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from lash.errors import LashError
from lash.stores.storage import Storage
from tests.proof.sweep.bench import Bench
from tests.proof.sweep.case import Case
from tests.proof.sweep.learned import Learned, found_wrong
from tests.proof.sweep.operation import run_operation
from tests.proof.sweep.seam import Seam
from tests.proof.sweep.text import State, answer_of, difference, state_of

G = TypeVar("G")


async def judge(bench: Bench, storage: Storage, case: Case[G], learned: Learned[G], outcome: object) -> None:
    # Through the writer, or through the only connection: it waits for running work, and finds leftovers.
    assert not await storage.sessions.delete("unknown")
    left = state_of(await bench.lines(), learned.known, case.blur)
    _check_left(case, learned, left, outcome)
    if left not in (learned.old, learned.new):
        assert await found_wrong(storage) == []
    done = left == learned.new
    await bench.align_numbers(done=done)
    second, _ = await run_operation(Seam(), case.call(storage, learned.given))
    found = state_of(await bench.lines(), learned.known, case.blur)
    wanted = learned.after_again if done else learned.new
    assert found == wanted, f"after {answer_of(second, learned.known)}:\n{difference(wanted, found)}"
    if left in (learned.old, learned.new):
        assert answer_of(second, learned.known) == (learned.again if done else learned.answer)
    else:
        answer_of(second, learned.known)
    assert await _lasting_problems(bench) == []


def _check_left(case: Case[G], learned: Learned[G], left: State, outcome: object) -> None:
    """Compare the rows left, and the caller's result, with what is allowed."""
    assert left in learned.states, _mixture(learned, left)
    if isinstance(outcome, asyncio.CancelledError):
        return
    if not isinstance(outcome, BaseException) or answer_of(outcome, learned.known) == learned.answer:
        returned = answer_of(outcome, learned.known)
        assert left == learned.new, _mixture(learned, left)
        assert returned == learned.answer or _may_return(case, learned, returned), (
            f"{returned}\ninstead of {learned.answer}"
        )
        return
    assert isinstance(outcome, LashError), outcome
    if left != learned.old and len(learned.states) == 2 and not case.elusive:
        assert _is_unknown(outcome), f"it was done, and its caller got {outcome!r} without outcome_unknown"


def _may_return(case: Case[G], learned: Learned[G], returned: str) -> bool:
    """Return whether a successful call may have this result, because lash retried it."""
    return bool(case.lost) and (returned == learned.again or len(learned.states) > 2)


def _is_unknown(error: BaseException | None) -> bool:
    return error is not None and (getattr(error, "outcome_unknown", False) or _is_unknown(error.__cause__))


async def _lasting_problems(bench: Bench) -> list[str]:
    """Return integrity errors of the database that persist after a moment."""
    for _ in range(100):
        if not await bench.problems():
            return []
        # A server takes a moment to notice that its client is gone.
        await asyncio.sleep(0.02)
    return await bench.problems()


def _mixture(learned: Learned[G], left: State) -> str:
    return (
        "what is left is neither the old state nor the new one\n"
        f"from the old one:\n{difference(learned.old, left)}\nfrom the new one:\n{difference(learned.new, left)}"
    )
