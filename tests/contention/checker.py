"""Judges a history of many processes on one storage, together with what was stored in the end.

It is pure and knows nothing of lash: what it is told are operations and rows. Each law has a name, by which the tests
of the checker tell that a broken history was refused for the right reason.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

from tests.contention.history import (
    AcquireAct,
    Act,
    AppendAct,
    CommitAct,
    EnqueueAct,
    FencedAct,
    OfferAct,
    Operation,
    ReadAct,
    State,
)
from tests.contention.register import Call, first_impossible

A = TypeVar("A", bound=Act)


class Law(enum.StrEnum):
    """What must hold."""

    REGISTER = "the head of a session is one register that is compared and set"
    CHAIN = "history is one line of exactly the commits that were made, each whole"
    TURN = "a turn is committed once"
    CONSUMED_ONCE = "an input is consumed once"
    NOTHING_LOST = "an input that was acknowledged is consumed or still queued"
    NOTHING_MADE_UP = "what is there was asked for"
    ORDER = "what was acknowledged before another began comes before it"
    FENCES_GROW = "every acquisition has a larger number than all before it"
    STALE_FENCE = "who lost the lease changes nothing"
    SET_ONCE = "what is set once has one value, for everybody"
    LOG = "an event is in the log once, under the number that was answered"


@dataclass(frozen=True)
class Violation:
    """A law that was broken, by whom or what."""

    law: Law
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.law.name} {self.subject}: {self.text}"


@dataclass(frozen=True)
class StoredNode:
    """A live node; ``key`` is the input that it was made of."""

    node_id: str
    parent: str | None
    key: str | None = None


@dataclass(frozen=True)
class StoredSession:
    """The rows of one session. ``nodes`` are in the order of insertion, ``queued`` are the keys in the queue."""

    revision: int
    leaf: str | None
    nodes: tuple[StoredNode, ...] = ()
    turns: Mapping[str, int] = field(default_factory=dict)
    queued: tuple[str, ...] = ()

    @property
    def consumed(self) -> list[str]:
        return [node.key for node in self.nodes if node.key is not None]


@dataclass(frozen=True)
class Stored:
    """What is stored in the end. A log has None where an event is none that a history tells of."""

    sessions: Mapping[str, StoredSession] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    logs: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    fences: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Told(Generic[A]):
    """An operation and its act, by its type."""

    operation: Operation
    act: A

    @property
    def is_ok(self) -> bool:
        return self.operation.state is State.OK

    @property
    def may_have_happened(self) -> bool:
        return self.operation.state is not State.FAIL


def judge(history: Sequence[Operation], stored: Stored) -> list[Violation]:
    """Return every law that was broken, in a readable order."""
    return [
        *_registers(history),
        *_chains(history, stored),
        *_inputs(history, stored),
        *_fences(history, stored),
        *_cells(history, stored),
        *_logs(history, stored),
    ]


def _of(history: Sequence[Operation], kind: type[A]) -> list[Told[A]]:
    return [Told(operation, operation.act) for operation in history if isinstance(operation.act, kind)]


# Heads.

Head = tuple[int, str | None]


def _registers(history: Sequence[Operation]) -> Iterator[Violation]:
    calls: defaultdict[str, list[tuple[Operation, Call[Head]]]] = defaultdict(list)
    for operation in history:
        act = operation.act
        if isinstance(act, ReadAct | CommitAct) and (call := _call(operation, act)) is not None:
            calls[act.session].append((operation, call))
    for session, made in sorted(calls.items()):
        number = first_impossible([call for _, call in made], (0, None))
        if number is not None:
            operation = made[number][0]
            yield Violation(
                Law.REGISTER, session, f"no order explains the answer to {operation.process}'s {operation.act}"
            )


def _call(operation: Operation, act: ReadAct | CommitAct) -> Call[Head] | None:
    """Return what an operation says of the register, if it says anything."""

    def read(head: Head) -> tuple[Head, ...]:
        return (head,) if isinstance(act, ReadAct) and head == (act.revision, act.leaf) else ()

    def publish(head: Head) -> tuple[Head, ...]:
        fits = isinstance(act, CommitAct) and head == (act.expected, act.seen_leaf)
        return ((act.expected + 1, act.nodes[-1]),) if fits and isinstance(act, CommitAct) else ()

    def refuse(head: Head) -> tuple[Head, ...]:
        return (head,) if isinstance(act, CommitAct) and head[0] == act.actual != act.expected else ()

    if isinstance(act, ReadAct):
        return Call(operation.start, operation.end, read) if operation.state is State.OK else None
    if operation.state is State.FAIL:
        return None if act.actual is None else Call(operation.start, operation.end, refuse)
    return None if act.repeated else Call(operation.start, operation.end, publish)


def _chains(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    commits: defaultdict[str, list[Told[CommitAct]]] = defaultdict(list)
    for told in _of(history, CommitAct):
        commits[told.act.session].append(told)
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
    acts = {told.act.turn: told.act for told in made}
    if unasked := kept.turns.keys() - acts.keys():
        yield Violation(Law.NOTHING_MADE_UP, session, f"nobody committed {sorted(unasked)[:3]}")
        return
    order = [acts[turn] for turn, _ in sorted(kept.turns.items(), key=lambda each: each[1])]
    expected = [(node, key) for act in order for node, key in _nodes_of(act)]
    found = [(node.node_id, node.key) for node in kept.nodes]
    if found != expected:
        at = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
        yield Violation(Law.CHAIN, session, f"{len(found)} nodes of {len(expected)}, which differ from place {at} on")
    parents = [None, *(node.node_id for node in kept.nodes)]
    if any(node.parent != parent for node, parent in zip(kept.nodes, parents, strict=False)):
        yield Violation(Law.CHAIN, session, "the nodes are no single line")
    if kept.leaf != (kept.nodes[-1].node_id if kept.nodes else None):
        yield Violation(Law.CHAIN, session, f"the head is at {kept.leaf}, which is not the last node")
    fences = [act.fencing for act in order if act.fencing is not None]
    if any(later < earlier for earlier, later in pairwise(fences)):
        yield Violation(Law.STALE_FENCE, session, f"commits under the fences {fences} in this order")


def _nodes_of(act: CommitAct) -> list[tuple[str, str | None]]:
    """Return the nodes of a commit: those of its inputs, then one more."""
    keys: list[str | None] = [*act.consumed, *[None] * (len(act.nodes) - len(act.consumed))]
    return list(zip(act.nodes, keys, strict=True))


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
    there = Counter((*kept.consumed, *kept.queued))
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


def _fences(history: Sequence[Operation], stored: Stored) -> Iterator[Violation]:
    taken: defaultdict[str, list[Told[AcquireAct]]] = defaultdict(list)
    for told in _of(history, AcquireAct):
        if told.is_ok:
            taken[told.act.subject].append(told)
    for subject, made in sorted(taken.items()):
        yield from _growing(subject, made, stored.fences.get(subject, 0))
    yield from _stale(history, taken)


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


def _stale(history: Sequence[Operation], taken: Mapping[str, list[Told[AcquireAct]]]) -> Iterator[Violation]:
    fenced: defaultdict[str, list[tuple[Operation, int]]] = defaultdict(list)
    for operation in history:
        act = operation.act
        if operation.state is not State.OK:
            continue
        if isinstance(act, FencedAct):
            fenced[act.subject].append((operation, act.fencing))
        elif isinstance(act, CommitAct) and act.fencing is not None and not act.repeated:
            fenced[f"session:{act.session}"].append((operation, act.fencing))
    for subject, made in sorted(fenced.items()):
        highest = _highest_before(taken.get(subject, []), [operation for operation, _ in made])
        for (operation, fencing), number in zip(made, highest, strict=True):
            if number > fencing:
                yield Violation(
                    Law.STALE_FENCE, subject, f"{operation.process}'s {operation.act} after number {number} was given"
                )


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
        if standing != {kept}:
            yield Violation(Law.SET_ONCE, cell, f"answered were {sorted(map(str, standing))}, stored is {kept}")
        winners = [told.act.value for told in made if told.act.won]
        if len(winners) > 1 or any(value is not None and value != kept for value in winners):
            yield Violation(Law.SET_ONCE, cell, f"accepted were {winners}, stored is {kept}")
        offered = {told.act.value for told in made if told.may_have_happened}
        if None not in offered and kept not in offered:
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
