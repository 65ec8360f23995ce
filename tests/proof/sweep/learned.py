"""The run of an operation without faults."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from lash.cli.audit import garbage_problems, row_problems, session_problems
from lash.stores.storage import Storage
from tests.proof.sweep.bench import Bench, Lines, SQLiteBench
from tests.proof.sweep.case import Again, Case
from tests.proof.sweep.operation import run_operation
from tests.proof.sweep.seam import Seam
from tests.proof.sweep.text import State, answer_of, difference, ids_in, state_of

G = TypeVar("G")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learned(Generic[G]):
    """The run of an operation without faults."""

    given: G
    known: frozenset[str]
    texts: tuple[str, ...]
    """Its statements."""
    waits: int
    """How often it waits."""
    states: tuple[State, ...]
    """Its states as seen from outside, in order: first the old one, last the new one."""
    answer: str
    again: str
    """The result of a second call."""
    after_again: State

    @property
    def old(self) -> State:
        return self.states[0]

    @property
    def new(self) -> State:
        return self.states[-1]


async def learn(bench: Bench, case: Case[G]) -> Learned[G]:
    """Prepare the storage, save it, and run the operation twice without a fault."""
    async with bench.opened(Seam()) as storage:
        given = await case.ground(storage, bench.clock)
    await bench.keep()
    await bench.restore()
    seen: list[Lines] = [await bench.lines()]
    seam = Seam()
    _observe(bench, seam, seen)
    async with bench.opened(seam) as storage:
        outcome, waits = await run_operation(seam, case.call(storage, given))
        seen.append(await bench.lines())
        await bench.note_numbers()
        # States that equal these, row by row, need no separate audit.
        wrong = await found_wrong(storage)
        second, _ = await run_operation(Seam(), case.call(storage, given))
        last = await bench.lines()
        assert wrong + await found_wrong(storage) == []
    known = ids_in(seen[0])
    states = list(dict.fromkeys(state_of(lines, known, case.blur) for lines in seen))
    learned = Learned(
        given=given,
        known=known,
        texts=tuple(seam.texts),
        waits=waits,
        states=tuple(states),
        answer=answer_of(outcome, known),
        again=answer_of(second, known),
        after_again=state_of(last, known, case.blur),
    )
    _check_learned(case, learned, second)
    return learned


def _observe(bench: Bench, seam: Seam, seen: list[Lines]) -> None:
    if isinstance(bench, SQLiteBench):
        seam.observe = lambda: seen.append(bench.read())
        return

    async def look() -> None:
        seam.looking = True
        seen.append(await bench.lines())
        seam.looking = False

    seam.observe_server = look


def _check_learned(case: Case[G], learned: Learned[G], second: object) -> None:
    """Check what the case claims about itself."""
    assert learned.old != learned.new, f"{case.name} changes nothing, so its sweep would prove nothing"
    words = ("INSERT", "UPDATE", "DELETE")
    assert any(word in text for text in learned.texts for word in words), f"{case.name}: the seam sees nothing written"
    assert len(learned.states) == 2 or case.steps, f"{case.name} is seen half done {len(learned.states) - 2} times"
    kept, same = learned.after_again == learned.new, learned.again == learned.answer
    if case.again is Again.MORE:
        assert not kept, f"{case.name}: a second call writes nothing"
    elif case.again is Again.SAME:
        assert (kept, same) == (True, True), difference(learned.new, learned.after_again, learned.answer, learned.again)
    elif case.again is Again.REPORTED:
        assert (kept, same) == (True, False), difference(
            learned.new, learned.after_again, learned.answer, learned.again
        )
    else:
        assert isinstance(second, case.again), f"{case.name}: a second call answers {learned.again}"
        assert kept, difference(learned.new, learned.after_again)


async def found_wrong(storage: Storage) -> list[str]:
    """Return what ``lash db check`` would find."""
    findings = [finding async for finding in garbage_problems(storage)]
    findings += [finding async for finding in row_problems(storage)]
    for summary in (await storage.sessions.list()).sessions:
        findings += [finding async for finding in session_problems(storage, summary)]
    return [f"{finding.where}: {finding.problem}" for finding in findings]
