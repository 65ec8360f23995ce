"""What may be left of an operation that was struck, and what must still work."""

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
    # Through the writer, or through the only connection: it waits for what is under way, and finds what was left open.
    assert not await storage.sessions.delete("nobody")
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
    """Hold what is left, and what the caller was told, against what may be."""
    assert left in learned.states, _mixture(learned, left)
    if isinstance(outcome, asyncio.CancelledError):
        return
    if not isinstance(outcome, BaseException) or answer_of(outcome, learned.known) == learned.answer:
        told = answer_of(outcome, learned.known)
        assert left == learned.new, _mixture(learned, left)
        assert told == learned.answer or _may_be_told(case, learned, told), f"{told}\ninstead of {learned.answer}"
        return
    assert isinstance(outcome, LashError), outcome
    if left != learned.old and len(learned.states) == 2 and not case.elusive:
        assert _is_unknown(outcome), f"it was done, and its caller was told {outcome!r} without outcome_unknown"


def _may_be_told(case: Case[G], learned: Learned[G], told: str) -> bool:
    """Say whether a call that succeeded may have been told this, since lash itself has repeated it."""
    return bool(case.lost) and (told == learned.again or len(learned.states) > 2)


def _is_unknown(error: BaseException | None) -> bool:
    return error is not None and (getattr(error, "outcome_unknown", False) or _is_unknown(error.__cause__))


async def _lasting_problems(bench: Bench) -> list[str]:
    """Return what the database finds wrong, and still does after a moment."""
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
