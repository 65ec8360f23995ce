"""Judges a history of many processes on one storage, together with what was stored in the end.

It is pure and knows nothing of lash: what it is told are operations and rows. Each law has a name, by which the tests
of the checker tell that a broken history was refused for the right reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from tests.proof.contention.history import (
    AcquireAct,
    Act,
    AppendAct,
    CommitAct,
    EnqueueAct,
    FencedAct,
    OfferAct,
    Operation,
    ReadAct,
)
from tests.proof.contention.register import Call, first_impossible
from tests.proof.contention.verdict import Law, Stored, StoredSession, Told, Violation

A = TypeVar("A", bound=Act)


def judge(history: Sequence[Operation], stored: Stored) -> list[Violation]:
    """Return every law that was broken, in a readable order."""
    commits: defaultdict[str, list[Told[CommitAct]]] = defaultdict(list)
    for told in _of(history, CommitAct):
        commits[told.act.session].append(told)
    return [
        *_registers(history, commits),
        *_chains(commits, stored),
        *_inputs(history, stored),
        *_fences(history, commits, stored),
        *_cells(history, stored),
        *_logs(history, stored),
    ]


def _of(history: Sequence[Operation], kind: type[A]) -> list[Told[A]]:
    return [Told(operation, operation.act) for operation in history if isinstance(operation.act, kind)]


# Heads.

Head = tuple[int, str | None]


def _registers(history: Sequence[Operation], commits: Mapping[str, list[Told[CommitAct]]]) -> Iterator[Violation]:
    calls: defaultdict[str, list[tuple[Act, Call[Head]]]] = defaultdict(list)
    for told in _of(history, ReadAct):
        if told.is_ok:
            calls[told.act.session].append((told.act, _reading(told)))
    for session, made in commits.items():
        calls[session] += [(told.act, _refusing(told)) for told in made if told.act.actual is not None]
        calls[session] += [(told.act, _publishing(told)) for told in _merged(made)]
    for session, each in sorted(calls.items()):
        number = first_impossible([call for _, call in each], (0, None))
        if number is not None:
            yield Violation(Law.REGISTER, session, f"no order explains the answer to {each[number][0]}")


def _reading(told: Told[ReadAct]) -> Call[Head]:
    seen = (told.act.revision, told.act.leaf)
    return Call(told.operation.start, told.operation.end, lambda head: (head,) if head == seen else ())


def _refusing(told: Told[CommitAct]) -> Call[Head]:
    act = told.act
    return Call(
        told.operation.start,
        told.operation.end,
        lambda head: (head,) if head[0] == act.actual and act.actual != act.expected else (),
    )


def _publishing(told: Told[CommitAct]) -> Call[Head]:
    act = told.act

    def publish(head: Head) -> tuple[Head, ...]:
        fits = head[0] == act.expected and (not act.nodes or head[1] == act.seen_leaf)
        return ((act.expected + 1, act.nodes[-1] if act.nodes else head[1]),) if fits else ()

    return Call(told.operation.start, told.operation.end, publish)


def _merged(made: Sequence[Told[CommitAct]]) -> Iterator[Told[CommitAct]]:
    """Return the tries of turns that may have taken effect; of a turn that was acknowledged only one.

    That one took effect between the beginning of the first that could and the first acknowledgement.
    """
    answered: dict[str, Operation] = {}
    for told in made:
        if told.is_ok:
            first = answered.setdefault(told.act.turn, told.operation)
            answered[told.act.turn] = min(first, told.operation, key=lambda operation: operation.end or 0)
    for turn, tries in _effective(made).items():
        if turn in answered:
            start = min(told.operation.start for told in tries)
            yield Told(msgspec.structs.replace(answered[turn], start=start), tries[0].act)
        else:
            yield from tries


def _effective(made: Sequence[Told[CommitAct]]) -> dict[str, list[Told[CommitAct]]]:
    """Return, for each turn, the tries of which one may have published it; the others were answered with its result.

    Of a turn that was acknowledged that is one that began before and expected the revision below.
    """
    turns: defaultdict[str, list[Told[CommitAct]]] = defaultdict(list)
    for told in made:
        if told.may_have_happened:
            turns[told.act.turn].append(told)
    for turn, tries in turns.items():
        answered = [told for told in tries if told.is_ok]
        if answered:
            first = min(answered, key=lambda told: told.operation.end or 0)
            turns[turn] = [
                told
                for told in tries
                if told.act.expected + 1 == first.act.revision and not first.operation.ended_before(told.operation)
            ] or [first]
    return turns


def _chains(commits: Mapping[str, list[Told[CommitAct]]], stored: Stored) -> Iterator[Violation]:
    for session, made in sorted(commits.items()):
        yield from _turns(session, made, stored.sessions[session])
        yield from _line(session, made, stored.sessions[session])


def _turns(session: str, made: Sequence[Told[CommitAct]], kept: StoredSession) -> Iterator[Violation]:
    """Compare what was answered with the turns that are stored."""
    happened = {told.act.turn for told in made if told.may_have_happened}
    for told in made:
        turn, revision = told.act.turn, kept.turns.get(told.act.turn)
        if told.is_ok and revision != told.act.revision:
            yield Violation(
                Law.TURN, session, f"turn {turn} was acknowledged as revision {told.act.revision} and is {revision}"
            )
        if not told.may_have_happened and turn in kept.turns and turn not in happened:
            yield Violation(Law.TURN, session, f"turn {turn} was refused and is there")
    if sorted(kept.turns.values()) != list(range(1, kept.revision + 1)):
        yield Violation(Law.TURN, session, f"the turns are not numbered from 1 to {kept.revision}, each once")


def _line(session: str, made: Sequence[Told[CommitAct]], kept: StoredSession) -> Iterator[Violation]:
    """Compare the nodes with those of the turns, one behind the other."""
    acts = {
        (turn, told.act.expected + 1): told.act for turn, tries in _effective(made).items() for told in reversed(tries)
    }
    order = [acts.get(turn) for turn in sorted(kept.turns.items(), key=lambda each: each[1])]
    known = [act for act in order if act is not None]
    if len(known) < len(order):
        yield Violation(Law.NOTHING_MADE_UP, session, f"{len(order) - len(known)} commits that nobody made")
        return
    found, expected = [node.node_id for node in kept.nodes], [node for act in known for node in act.nodes]
    if found != expected:
        at = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
        yield Violation(Law.CHAIN, session, f"{len(found)} nodes of {len(expected)}, which differ from place {at} on")
    elif kept.consumed != [key for act in known for key in act.consumed]:
        yield Violation(Law.CHAIN, session, "the nodes are not those of the inputs that their commits consumed")
    parents = [None, *(node.node_id for node in kept.nodes)]
    if any(node.parent != parent for node, parent in zip(kept.nodes, parents, strict=False)):
        yield Violation(Law.CHAIN, session, "the nodes are no single line")
    if kept.leaf != (kept.nodes[-1].node_id if kept.nodes else None):
        yield Violation(Law.CHAIN, session, f"the head is at {kept.leaf}, which is not the last node")


# Inputs.


def _inputs(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    asked: defaultdict[str, list[Told[EnqueueAct]]] = defaultdict(list)
    for told in _of(history, EnqueueAct):
        asked[told.act.session].append(told)
    for session, kept in sorted(stored.sessions.items()):
        yield from _account(session, asked[session], kept)
        made = {told.act.key: told.operation for told in asked[session] if told.act.created}
        places = [made[key] for key in (*kept.consumed, *kept.queued) if key in made]
        yield from _in_order(session, places)


def _account(session: str, asked: Sequence[Told[EnqueueAct]], kept: StoredSession) -> Iterator[Violation]:
    there = Counter((*kept.consumed, *kept.queued, *kept.dead))
    for key, times in there.items():
        if times > 1:
            yield Violation(Law.CONSUMED_ONCE, session, f"{key} is there {times} times")
    for key in sorted({told.act.key for told in asked if told.is_ok} - there.keys()):
        yield Violation(Law.NOTHING_LOST, session, f"{key} was acknowledged and is gone")
    for key in sorted(there.keys() - {told.act.key for told in asked if told.may_have_happened}):
        yield Violation(Law.NOTHING_MADE_UP, session, f"nobody enqueued {key}")
    for key, times in Counter(told.act.key for told in asked if told.act.created).items():
        if times > 1:
            yield Violation(Law.CONSUMED_ONCE, session, f"{key} was added {times} times")


def _in_order(subject: str, places: Sequence[Operation]) -> Iterator[Violation]:
    """Say where something precedes what was acknowledged before it began."""
    latest: Operation | None = None
    for operation in places:
        if latest is not None and operation.ended_before(latest):
            yield Violation(Law.ORDER, subject, f"{operation.act} comes behind {latest.act}, which began after its end")
            return
        if latest is None or operation.start > latest.start:
            latest = operation


# Fences.


def _fences(
    history: Sequence[Operation], commits: Mapping[str, list[Told[CommitAct]]], stored: Stored
) -> Iterator[Violation]:
    taken: defaultdict[str, list[Told[AcquireAct]]] = defaultdict(list)
    for told in _of(history, AcquireAct):
        if told.is_ok:
            taken[told.act.subject].append(told)
    for subject, made in sorted(taken.items()):
        yield from _growing(subject, made, stored.fences.get(subject, 0))
    yield from _stale(history, commits, taken)
    yield from _going_back(commits, stored)
    yield from _ended_once(history)


def _growing(subject: str, made: Sequence[Told[AcquireAct]], last: int) -> Iterator[Violation]:
    tokens: dict[int, str] = {}
    for told in made:
        if tokens.setdefault(told.act.fencing, told.act.token) != told.act.token:
            yield Violation(Law.FENCES_GROW, subject, f"two acquisitions under the number {told.act.fencing}")
    for told, highest in _with_highest_before(made, [each.operation for each in made]):
        if highest > told.act.fencing:
            yield Violation(Law.FENCES_GROW, subject, f"number {told.act.fencing} was given after {highest}")
    if max(tokens) > last:
        yield Violation(Law.FENCES_GROW, subject, f"number {max(tokens)} was given and {last} is stored")


def _stale(
    history: Sequence[Operation],
    commits: Mapping[str, list[Told[CommitAct]]],
    taken: Mapping[str, list[Told[AcquireAct]]],
) -> Iterator[Violation]:
    """Yield what was accepted under a fence after a larger one was given."""
    fenced: defaultdict[str, list[list[tuple[Operation, int]]]] = defaultdict(list)
    for told in _of(history, FencedAct):
        if told.is_ok and told.act.outcome is None:
            fenced[told.act.subject].append([(told.operation, told.act.fencing)])
    for ends in _ends(history):
        fenced[ends[0].act.subject].append([(told.operation, told.act.fencing) for told in ends])
    for session, made in commits.items():
        for tries in _effective(made).values():
            under = [(told.operation, told.act.fencing) for told in tries if told.act.fencing is not None]
            if len(under) == len(tries) and any(told.is_ok for told in tries):
                fenced[f"session:{session}"].append([(operation, fencing or 0) for operation, fencing in under])
    for subject, groups in sorted(fenced.items()):
        highest = iter(_highest_before(taken.get(subject, []), [each for group in groups for each, _ in group]))
        for group in groups:
            # One of them took effect, and the history cannot show which: one that may have is enough.
            if all([next(highest) > fencing for _, fencing in group]):  # noqa: C419 - each has its number
                operation = group[0][0]
                yield Violation(Law.STALE_FENCE, subject, f"{operation.process}'s {operation.act}")


def _ends(history: Sequence[Operation]) -> Iterator[list[Told[FencedAct]]]:
    """Yield, for each acknowledged outcome of a process, the tries of which one recorded it.

    That one began before the first acknowledgement. All later tries repeat a stored outcome, which writes nothing.
    """
    ends: defaultdict[tuple[str, str], list[Told[FencedAct]]] = defaultdict(list)
    for told in _of(history, FencedAct):
        if told.may_have_happened and told.act.outcome is not None:
            ends[told.act.subject, told.act.outcome].append(told)
    for tries in ends.values():
        acknowledged = [told.operation for told in tries if told.is_ok]
        if acknowledged:
            first = min(acknowledged, key=lambda operation: operation.end or 0)
            yield [told for told in tries if not first.ended_before(told.operation)]


def _ended_once(history: Sequence[Operation]) -> Iterator[Violation]:
    """Yield the processes for which two outcomes were acknowledged."""
    outcomes: defaultdict[str, list[str]] = defaultdict(list)
    for tries in _ends(history):
        outcomes[tries[0].act.subject].append(str(tries[0].act.outcome))
    for subject, found in sorted(outcomes.items()):
        if len(found) > 1:
            yield Violation(Law.SET_ONCE, subject, f"acknowledged were the outcomes {sorted(found)}")


def _going_back(commits: Mapping[str, list[Told[CommitAct]]], stored: Stored) -> Iterator[Violation]:
    """Say where a commit under a smaller fence follows one under a larger."""
    for session, made in sorted(commits.items()):
        turns = stored.sessions[session].turns
        fences = sorted(
            (turns[turn], tries[0].act.fencing)
            for turn, tries in _effective(made).items()
            if turn in turns and len(tries) == 1 and tries[0].act.fencing is not None
        )
        if any((later or 0) < (earlier or 0) for (_, earlier), (_, later) in pairwise(fences)):
            yield Violation(Law.STALE_FENCE, session, f"commits under the fences {fences} in this order")


def _with_highest_before(
    made: Sequence[Told[AcquireAct]], operations: Sequence[Operation]
) -> Iterator[tuple[Told[AcquireAct], int]]:
    return zip(made, _highest_before(made, operations), strict=True)


def _highest_before(made: Sequence[Told[AcquireAct]], operations: Sequence[Operation]) -> list[int]:
    """Return, for each operation, the highest number that was acknowledged before it began."""
    ends = sorted((told.operation.end or 0, told.act.fencing) for told in made)
    numbers: dict[int, int] = {}
    highest = place = 0
    for index in sorted(range(len(operations)), key=lambda each: operations[each].start):
        while place < len(ends) and ends[place][0] < operations[index].start:
            highest = max(highest, ends[place][1])
            place += 1
        numbers[index] = highest
    return [numbers[index] for index in range(len(operations))]


# What is set once, and logs.


def _cells(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    offers: defaultdict[str, list[Told[OfferAct]]] = defaultdict(list)
    for told in _of(history, OfferAct):
        offers[told.act.cell].append(told)
    for cell, made in sorted(offers.items()):
        standing = {told.act.standing for told in made if told.is_ok}
        if not standing:
            continue
        kept = stored.cells.get(cell)
        if kept is None and not any(told.act.lasting for told in made):
            kept = next(iter(standing))
        if standing != {kept}:
            yield Violation(Law.SET_ONCE, cell, f"answered were {sorted(map(str, standing))}, stored is {kept}")
        winners = [told.act.value for told in made if told.act.won]
        if len(winners) > 1 or any(value is not None and value != kept for value in winners):
            yield Violation(Law.SET_ONCE, cell, f"accepted were {winners}, stored is {kept}")
        offered = {told.act.value for told in made if told.may_have_happened and told.act.value is not None}
        if offered and kept not in offered:
            yield Violation(Law.NOTHING_MADE_UP, cell, f"nobody offered {kept}")


def _logs(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    appended: defaultdict[str, list[Told[AppendAct]]] = defaultdict(list)
    for told in _of(history, AppendAct):
        appended[told.act.process].append(told)
    for process, made in sorted(appended.items()):
        log = stored.logs.get(process, ())
        yield from _log(process, made, log)
        first = {told.act.payload: told.operation for told in reversed(made) if told.is_ok}
        yield from _in_order(process, [first[payload] for payload in log if payload in first])


def _log(process: str, made: Sequence[Told[AppendAct]], log: tuple[str | None, ...]) -> Iterator[Violation]:
    for told in made:
        number = told.act.sequence
        if told.is_ok and (number is None or not 0 < number <= len(log) or log[number - 1] != told.act.payload):
            yield Violation(
                Law.LOG, process, f"{told.act.payload} was acknowledged as number {number} and is not there"
            )
    there = Counter(payload for payload in log if payload is not None)
    for payload, times in there.items():
        if times > 1:
            yield Violation(Law.LOG, process, f"{payload} is there {times} times")
    for payload in sorted(there.keys() - {told.act.payload for told in made if told.may_have_happened}):
        yield Violation(Law.NOTHING_MADE_UP, process, f"nobody appended {payload}")
