"""Checks a history of many processes on one storage, and the rows stored in the end.

It is pure and does not import lash: its input is operations and rows. Each law has a name, so that the tests of the
checker can assert that a broken history was refused for the right reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from tests.proof.contention.counter import judge_counters
from tests.proof.contention.history import (
    ANY,
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
from tests.proof.contention.verdict import Law, Stored, StoredSession, TypedOperation, Violation

A = TypeVar("A", bound=Act)


def judge(history: Sequence[Operation], stored: Stored) -> list[Violation]:
    """Return every broken law, in a readable order."""
    commits: defaultdict[str, list[TypedOperation[CommitAct]]] = defaultdict(list)
    for typed in _of(history, CommitAct):
        commits[typed.act.session].append(typed)
    return [
        *_registers(history, commits),
        *_chains(commits, stored),
        *_inputs(history, stored),
        *_fences(history, commits, stored),
        *_cells(history, stored),
        *_logs(history, stored),
        *judge_counters(history, stored),
        *_labels(stored),
    ]


def _labels(stored: Stored) -> Iterator[Violation]:
    """Return each session with parts of several edits, or that lists find by others than it has."""
    for session_id, labels in sorted(stored.labels.items()):
        if labels.held != labels.found_by:
            yield Violation(Law.LABELS, session_id, f"has {labels.held}, and is found by {labels.found_by}")
        if len(set(labels.held.values())) > 1:
            yield Violation(Law.LABELS, session_id, f"has parts of several edits: {labels.held}")


def _of(history: Sequence[Operation], kind: type[A]) -> list[TypedOperation[A]]:
    return [TypedOperation(operation, operation.act) for operation in history if isinstance(operation.act, kind)]


# Heads.

Head = tuple[int, str | None]


def _registers(
    history: Sequence[Operation], commits: Mapping[str, list[TypedOperation[CommitAct]]]
) -> Iterator[Violation]:
    calls: defaultdict[str, list[tuple[Act, Call[Head]]]] = defaultdict(list)
    for typed in _of(history, ReadAct):
        if typed.is_ok:
            calls[typed.act.session].append((typed.act, _reading(typed)))
    for session, made in commits.items():
        calls[session] += [(typed.act, _refusing(typed)) for typed in made if typed.act.actual is not None]
        calls[session] += [(typed.act, _publishing(typed)) for typed in _merged(made)]
    for session, each in sorted(calls.items()):
        number = first_impossible([call for _, call in each], (0, None))
        if number is not None:
            yield Violation(Law.REGISTER, session, f"no order explains the answer to {each[number][0]}")


def _reading(typed: TypedOperation[ReadAct]) -> Call[Head]:
    seen = (typed.act.revision, typed.act.leaf)
    return Call(typed.operation.start, typed.operation.end, lambda head: (head,) if head == seen else ())


def _refusing(typed: TypedOperation[CommitAct]) -> Call[Head]:
    act = typed.act
    return Call(
        typed.operation.start,
        typed.operation.end,
        lambda head: (head,) if head[0] == act.actual and act.actual != act.expected else (),
    )


def _publishing(typed: TypedOperation[CommitAct]) -> Call[Head]:
    act = typed.act

    def publish(head: Head) -> tuple[Head, ...]:
        fits = head[0] == act.expected and (not act.nodes or head[1] == act.seen_leaf)
        after = (head[0] + 1, act.nodes[-1] if act.nodes else head[1])
        return (after,) if fits or act.expected == ANY else ()

    return Call(typed.operation.start, typed.operation.end, publish)


def _merged(made: Sequence[TypedOperation[CommitAct]]) -> Iterator[TypedOperation[CommitAct]]:
    """Return the tries of turns that may have taken effect; one per acknowledged turn.

    It took effect between the start of the first try that could and the first acknowledgement.
    """
    answered: dict[str, Operation] = {}
    for typed in made:
        if typed.is_ok:
            first = answered.setdefault(typed.act.turn, typed.operation)
            answered[typed.act.turn] = min(first, typed.operation, key=lambda operation: operation.end or 0)
    for turn, tries in _effective(made).items():
        if turn in answered:
            start = min(typed.operation.start for typed in tries)
            yield TypedOperation(msgspec.structs.replace(answered[turn], start=start), tries[0].act)
        else:
            yield from tries


def _effective(made: Sequence[TypedOperation[CommitAct]]) -> dict[str, list[TypedOperation[CommitAct]]]:
    """Return, for each turn, the tries of which one may have published it; the others received its result.

    For an acknowledged turn, these are the tries that began before and expected the revision below.
    """
    turns: defaultdict[str, list[TypedOperation[CommitAct]]] = defaultdict(list)
    for typed in made:
        if typed.may_have_happened:
            turns[typed.act.turn].append(typed)
    for turn, tries in turns.items():
        answered = [typed for typed in tries if typed.is_ok]
        if answered:
            first = min(answered, key=lambda typed: typed.operation.end or 0)
            below = ANY if first.act.revision is None else first.act.revision - 1
            turns[turn] = [
                typed
                for typed in tries
                if typed.act.expected in (ANY, below) and not first.operation.ended_before(typed.operation)
            ] or [first]
    return turns


def _chains(commits: Mapping[str, list[TypedOperation[CommitAct]]], stored: Stored) -> Iterator[Violation]:
    for session, made in sorted(commits.items()):
        yield from _turns(session, made, stored.sessions[session])
        yield from _line(session, made, stored.sessions[session])


def _turns(session: str, made: Sequence[TypedOperation[CommitAct]], kept: StoredSession) -> Iterator[Violation]:
    """Compare the acknowledgements with the stored turns."""
    happened = {typed.act.turn for typed in made if typed.may_have_happened}
    for typed in made:
        turn, revision = typed.act.turn, kept.turns.get(typed.act.turn)
        if typed.is_ok and revision != typed.act.revision:
            yield Violation(
                Law.TURN, session, f"turn {turn} was acknowledged as revision {typed.act.revision} and is {revision}"
            )
        if not typed.may_have_happened and turn in kept.turns and turn not in happened:
            yield Violation(Law.TURN, session, f"turn {turn} was refused and is there")
    if sorted(kept.turns.values()) != list(range(1, kept.revision + 1)):
        yield Violation(Law.TURN, session, f"the turns are not numbered from 1 to {kept.revision}, each once")


def _line(session: str, made: Sequence[TypedOperation[CommitAct]], kept: StoredSession) -> Iterator[Violation]:
    """Compare the stored nodes with those of the turns, in order."""
    acts = {
        (turn, kept.turns.get(turn) if typed.act.expected == ANY else typed.act.expected + 1): typed.act
        for turn, tries in _effective(made).items()
        for typed in reversed(tries)
    }
    order = [acts.get(turn) for turn in sorted(kept.turns.items(), key=lambda each: each[1])]
    known = [act for act in order if act is not None]
    if len(known) < len(order):
        yield Violation(Law.NOTHING_MADE_UP, session, f"{len(order) - len(known)} commits that no client made")
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
    asked: defaultdict[str, list[TypedOperation[EnqueueAct]]] = defaultdict(list)
    for typed in _of(history, EnqueueAct):
        asked[typed.act.session].append(typed)
    for session, kept in sorted(stored.sessions.items()):
        yield from _account(session, asked[session], kept)
        made = {typed.act.key: typed.operation for typed in asked[session] if typed.act.created}
        places = [made[key] for key in (*kept.consumed, *kept.queued) if key in made]
        yield from _in_order(session, places)


def _account(session: str, asked: Sequence[TypedOperation[EnqueueAct]], kept: StoredSession) -> Iterator[Violation]:
    there = Counter((*kept.consumed, *kept.queued, *kept.dead))
    for key, times in there.items():
        if times > 1:
            yield Violation(Law.CONSUMED_ONCE, session, f"{key} is there {times} times")
    for key in sorted({typed.act.key for typed in asked if typed.is_ok} - there.keys()):
        yield Violation(Law.NOTHING_LOST, session, f"{key} was acknowledged and is gone")
    for key in sorted(there.keys() - {typed.act.key for typed in asked if typed.may_have_happened}):
        yield Violation(Law.NOTHING_MADE_UP, session, f"no client enqueued {key}")
    for key, times in Counter(typed.act.key for typed in asked if typed.act.created).items():
        if times > 1:
            yield Violation(Law.CONSUMED_ONCE, session, f"{key} was added {times} times")


def _in_order(subject: str, places: Sequence[Operation]) -> Iterator[Violation]:
    """Report where an item precedes one that was acknowledged before it began."""
    latest: Operation | None = None
    for operation in places:
        if latest is not None and operation.ended_before(latest):
            yield Violation(Law.ORDER, subject, f"{operation.act} comes behind {latest.act}, which began after its end")
            return
        if latest is None or operation.start > latest.start:
            latest = operation


# Fences.


def _fences(
    history: Sequence[Operation], commits: Mapping[str, list[TypedOperation[CommitAct]]], stored: Stored
) -> Iterator[Violation]:
    taken: defaultdict[str, list[TypedOperation[AcquireAct]]] = defaultdict(list)
    for typed in _of(history, AcquireAct):
        if typed.is_ok:
            taken[typed.act.subject].append(typed)
    for subject, made in sorted(taken.items()):
        yield from _growing(subject, made, stored.fences.get(subject, 0))
    yield from _stale(history, commits, taken)
    yield from _going_back(commits, stored)
    yield from _ended_once(history)


def _growing(subject: str, made: Sequence[TypedOperation[AcquireAct]], last: int) -> Iterator[Violation]:
    tokens: dict[int, str] = {}
    for typed in made:
        if tokens.setdefault(typed.act.fencing, typed.act.token) != typed.act.token:
            yield Violation(Law.FENCES_GROW, subject, f"two acquisitions under the number {typed.act.fencing}")
    for typed, highest in _with_highest_before(made, [each.operation for each in made]):
        if highest > typed.act.fencing:
            yield Violation(Law.FENCES_GROW, subject, f"number {typed.act.fencing} was given after {highest}")
    if max(tokens) > last:
        yield Violation(Law.FENCES_GROW, subject, f"number {max(tokens)} was given and {last} is stored")


def _stale(
    history: Sequence[Operation],
    commits: Mapping[str, list[TypedOperation[CommitAct]]],
    taken: Mapping[str, list[TypedOperation[AcquireAct]]],
) -> Iterator[Violation]:
    """Yield operations accepted under a fence after a larger one was given."""
    fenced: defaultdict[str, list[list[tuple[Operation, int]]]] = defaultdict(list)
    for typed in _of(history, FencedAct):
        if typed.is_ok and typed.act.outcome is None:
            fenced[typed.act.subject].append([(typed.operation, typed.act.fencing)])
    for ends in _ends(history):
        fenced[ends[0].act.subject].append([(typed.operation, typed.act.fencing) for typed in ends])
    for session, made in commits.items():
        for tries in _effective(made).values():
            under = [(typed.operation, typed.act.fencing) for typed in tries if typed.act.fencing is not None]
            if len(under) == len(tries) and any(typed.is_ok for typed in tries):
                fenced[f"session:{session}"].append([(operation, fencing or 0) for operation, fencing in under])
    for subject, groups in sorted(fenced.items()):
        highest = iter(_highest_before(taken.get(subject, []), [each for group in groups for each, _ in group]))
        for group in groups:
            # One of them took effect, and the history cannot show which: one that may have is enough.
            if all([next(highest) > fencing for _, fencing in group]):  # noqa: C419 - each has its number
                operation = group[0][0]
                yield Violation(Law.STALE_FENCE, subject, f"{operation.process}'s {operation.act}")


def _ends(history: Sequence[Operation]) -> Iterator[list[TypedOperation[FencedAct]]]:
    """Yield, for each acknowledged outcome of a process, the tries of which one recorded it.

    That one began before the first acknowledgement. All later tries repeat a stored outcome, which writes nothing.
    """
    ends: defaultdict[tuple[str, str], list[TypedOperation[FencedAct]]] = defaultdict(list)
    for typed in _of(history, FencedAct):
        if typed.may_have_happened and typed.act.outcome is not None:
            ends[typed.act.subject, typed.act.outcome].append(typed)
    for tries in ends.values():
        acknowledged = [typed.operation for typed in tries if typed.is_ok]
        if acknowledged:
            first = min(acknowledged, key=lambda operation: operation.end or 0)
            yield [typed for typed in tries if not first.ended_before(typed.operation)]


def _ended_once(history: Sequence[Operation]) -> Iterator[Violation]:
    """Yield the processes with two acknowledged outcomes."""
    outcomes: defaultdict[str, list[str]] = defaultdict(list)
    for tries in _ends(history):
        outcomes[tries[0].act.subject].append(str(tries[0].act.outcome))
    for subject, found in sorted(outcomes.items()):
        if len(found) > 1:
            yield Violation(Law.SET_ONCE, subject, f"acknowledged were the outcomes {sorted(found)}")


def _going_back(commits: Mapping[str, list[TypedOperation[CommitAct]]], stored: Stored) -> Iterator[Violation]:
    """Report where a commit under a smaller fence follows one under a larger."""
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
    made: Sequence[TypedOperation[AcquireAct]], operations: Sequence[Operation]
) -> Iterator[tuple[TypedOperation[AcquireAct], int]]:
    return zip(made, _highest_before(made, operations), strict=True)


def _highest_before(made: Sequence[TypedOperation[AcquireAct]], operations: Sequence[Operation]) -> list[int]:
    """Return, for each operation, the highest number that was acknowledged before it began."""
    ends = sorted((typed.operation.end or 0, typed.act.fencing) for typed in made)
    numbers: dict[int, int] = {}
    highest = place = 0
    for index in sorted(range(len(operations)), key=lambda each: operations[each].start):
        while place < len(ends) and ends[place][0] < operations[index].start:
            highest = max(highest, ends[place][1])
            place += 1
        numbers[index] = highest
    return [numbers[index] for index in range(len(operations))]


# Values that are set once, and logs.


def _cells(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    offers: defaultdict[str, list[TypedOperation[OfferAct]]] = defaultdict(list)
    for typed in _of(history, OfferAct):
        offers[typed.act.cell].append(typed)
    for cell, made in sorted(offers.items()):
        standing = {typed.act.standing for typed in made if typed.is_ok}
        if not standing:
            continue
        kept = stored.cells.get(cell)
        if kept is None and not any(typed.act.lasting for typed in made):
            kept = next(iter(standing))
        if standing != {kept}:
            yield Violation(Law.SET_ONCE, cell, f"answered were {sorted(map(str, standing))}, stored is {kept}")
        winners = [typed.act.value for typed in made if typed.act.won]
        if len(winners) > 1 or any(value is not None and value != kept for value in winners):
            yield Violation(Law.SET_ONCE, cell, f"accepted were {winners}, stored is {kept}")
        offered = {typed.act.value for typed in made if typed.may_have_happened and typed.act.value is not None}
        if offered and kept not in offered:
            yield Violation(Law.NOTHING_MADE_UP, cell, f"no client offered {kept}")


def _logs(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    appended: defaultdict[str, list[TypedOperation[AppendAct]]] = defaultdict(list)
    for typed in _of(history, AppendAct):
        appended[typed.act.process].append(typed)
    for process, made in sorted(appended.items()):
        log = stored.logs.get(process, ())
        yield from _log(process, made, log)
        first = {typed.act.payload: typed.operation for typed in reversed(made) if typed.is_ok}
        yield from _in_order(process, [first[payload] for payload in log if payload in first])


def _log(process: str, made: Sequence[TypedOperation[AppendAct]], log: tuple[str | None, ...]) -> Iterator[Violation]:
    for typed in made:
        number = typed.act.sequence
        if typed.is_ok and (number is None or not 0 < number <= len(log) or log[number - 1] != typed.act.payload):
            yield Violation(
                Law.LOG, process, f"{typed.act.payload} was acknowledged as number {number} and is not there"
            )
    there = Counter(payload for payload in log if payload is not None)
    for payload, times in there.items():
        if times > 1:
            yield Violation(Law.LOG, process, f"{payload} is there {times} times")
    for payload in sorted(there.keys() - {typed.act.payload for typed in made if typed.may_have_happened}):
        yield Violation(Law.NOTHING_MADE_UP, process, f"no client appended {payload}")
