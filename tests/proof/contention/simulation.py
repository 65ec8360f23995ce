"""Histories of a correct storage, whose every operation is one atomic step, for the tests of the checker.

Clients begin acts, the acts take effect at some moment, and the clients learn of it later, in an order that a seed
decides. Some clients die during an act.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tests.proof.contention.history import (
    AcquireAct,
    Act,
    AppendAct,
    CommitAct,
    CountAct,
    EnqueueAct,
    Entry,
    FencedAct,
    OfferAct,
    Operation,
    ReadAct,
    State,
    paired,
)
from tests.proof.contention.verdict import Stored, StoredLabels, StoredNode, StoredSession

_SESSIONS: Final = ("s0", "s1")
_CELLS: Final = 4
_CLIENTS: Final = 4
_DEATH: Final = 0.02


@dataclass
class _Session:
    revision: int = 0
    leaf: str | None = None
    fencing: int = 0
    outcome: str | None = None
    nodes: list[StoredNode] = field(default_factory=list)
    turns: dict[str, int] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


@dataclass
class _Client:
    """A client: what it saw of each session, which leases it took, and its current act."""

    name: str
    seen: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    number: int = 0
    act: Act | None = None
    answer: tuple[State, Act] | None = None


class Simulation:
    """A storage, its clients, and the history that they write."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sessions = {name: _Session() for name in _SESSIONS}
        self._cells: dict[str, str] = {}
        self._log: list[str | None] = []
        self._counters = {"r0": 0, "r1": 0}
        self._entries: list[Entry] = []
        self._names = 0
        self._clients = [self._hire() for _ in range(_CLIENTS)]

    def run(self, steps: int) -> tuple[list[Operation], Stored]:
        """Run this many steps of random clients; return their history and the stored rows."""
        for _ in range(steps):
            client = self._random.choice(self._clients)
            if client.act is not None and self._random.random() < _DEATH:
                self._clients[self._clients.index(client)] = self._hire()
            elif client.act is None:
                self._begin(client)
            elif client.answer is None:
                client.answer = self._apply(client, client.act)
            else:
                self._learn(client)
        return paired(self._entries), self._stored()

    def _hire(self) -> _Client:
        return _Client(f"c{self._unique()}")

    def _unique(self) -> int:
        self._names += 1
        return self._names

    def _begin(self, client: _Client) -> None:
        client.number += 1
        client.act = self._random.choice(_BEGINNINGS)(self, client, self._random.choice(_SESSIONS))
        self._write(client, State.INVOKE, client.act)

    def _learn(self, client: _Client) -> None:
        assert client.answer is not None
        state, act = client.answer
        self._write(client, state, act)
        if state is State.OK and isinstance(act, AcquireAct):
            client.fences[act.subject.removeprefix("session:")] = act.fencing
        if isinstance(act, ReadAct):
            client.seen[act.session] = (act.revision, act.leaf)
        if isinstance(act, CommitAct) and state is State.OK:
            client.seen[act.session] = (act.expected + 1, act.nodes[-1])
        client.act = client.answer = None

    def _write(self, client: _Client, state: State, act: Act) -> None:
        entry = Entry(process=client.name, number=client.number, at=len(self._entries), state=state, act=act)
        self._entries.append(entry)

    def _stored(self) -> Stored:
        sessions = {
            name: StoredSession(each.revision, each.leaf, tuple(each.nodes), each.turns, tuple(each.queue))
            for name, each in self._sessions.items()
        }
        counters = {name: (count, count) for name, count in self._counters.items() if count}
        fences = {f"session:{name}": each.fencing for name, each in self._sessions.items()}
        return Stored(
            sessions=sessions,
            cells=self._cells,
            logs={"p": tuple(self._log)},
            fences=fences,
            counters=counters,
            labels={"s": StoredLabels({"": "e", "team": "e"}, {"": "e", "team": "e"})},
        )

    # Acts that a client may begin.

    def read(self, client: _Client, session: str) -> Act:
        return ReadAct(session=session)

    def acquire(self, client: _Client, session: str) -> Act:
        return AcquireAct(subject=f"session:{session}")

    def enqueue(self, client: _Client, session: str) -> Act:
        known = sorted(self._sessions[session].keys)
        again = known and self._random.random() < 0.2
        return EnqueueAct(session=session, key=self._random.choice(known) if again else f"k{self._unique()}")

    def commit(self, client: _Client, session: str) -> Act:
        revision, leaf = client.seen.get(session, (0, None))
        queue = self._sessions[session].queue
        consumed = tuple(queue[: self._random.randint(0, 2)])
        turn = f"t{self._unique()}"
        return CommitAct(
            session=session,
            turn=turn,
            expected=revision,
            seen_leaf=leaf,
            nodes=tuple(f"{turn}.{number}" for number in range(len(consumed) + 1)),
            consumed=consumed,
            fencing=client.fences.get(session) if consumed or self._random.random() < 0.5 else None,
        )

    def renew(self, client: _Client, session: str) -> Act:
        return FencedAct(subject=f"session:{session}", fencing=client.fences.get(session, 0), what="renew")

    def complete(self, client: _Client, session: str) -> Act:
        """Record one of two outcomes, so that outcomes are often repeated and often contradicted."""
        outcome = self._random.choice(("x", "y"))
        fencing = client.fences.get(session, 0)
        return FencedAct(subject=f"session:{session}", fencing=fencing, what="complete", outcome=outcome)

    def offer(self, client: _Client, session: str) -> Act:
        return OfferAct(cell=f"cell{self._random.randrange(_CELLS)}", value=f"v{self._unique()}")

    def append(self, client: _Client, session: str) -> Act:
        return AppendAct(process="p", payload=f"e{self._unique()}")

    def count(self, client: _Client, session: str) -> Act:
        """Increment a record of the version that a client may have read a while ago."""
        name = self._random.choice(sorted(self._counters))
        return CountAct(record=name, expected=max(0, self._counters[name] - self._random.choice((0, 0, 0, 1))))

    # How an act takes effect.

    def _apply(self, client: _Client, act: Act) -> tuple[State, Act]:
        match act:
            case ReadAct():
                session = self._sessions[act.session]
                return State.OK, msgspec.structs.replace(act, revision=session.revision, leaf=session.leaf)
            case AcquireAct():
                session = self._sessions[act.subject.removeprefix("session:")]
                session.fencing += 1
                return State.OK, AcquireAct(subject=act.subject, fencing=session.fencing, token=f"{session.fencing}")
            case FencedAct():
                session = self._sessions[act.subject.removeprefix("session:")]
                accepted = session.fencing == act.fencing
                if act.outcome is not None and session.outcome is not None:
                    accepted = act.outcome == session.outcome
                elif act.outcome is not None and accepted:
                    session.outcome = act.outcome
                return (State.OK if accepted else State.FAIL), act
            case OfferAct():
                won = act.cell not in self._cells
                standing = self._cells.setdefault(act.cell, act.value or "")
                return State.OK, msgspec.structs.replace(act, standing=standing, won=won)
            case AppendAct():
                self._log.append(act.payload)
                return State.OK, msgspec.structs.replace(act, sequence=len(self._log))
            case CountAct():
                actual = self._counters[act.record]
                if actual != act.expected:
                    return State.FAIL, msgspec.structs.replace(act, actual=actual)
                self._counters[act.record] = actual + 1
                return State.OK, act
            case EnqueueAct():
                return State.OK, self._add(act)
            case CommitAct():
                return self._publish(act)

    def _add(self, act: EnqueueAct) -> Act:
        session = self._sessions[act.session]
        created = act.key not in session.keys
        if created:
            session.keys.add(act.key)
            session.queue.append(act.key)
        return msgspec.structs.replace(act, created=created)

    def _publish(self, act: CommitAct) -> tuple[State, Act]:
        session = self._sessions[act.session]
        if act.fencing is not None and act.fencing != session.fencing:
            return State.FAIL, act
        if act.expected != session.revision:
            return State.FAIL, msgspec.structs.replace(act, actual=session.revision)
        if tuple(session.queue[: len(act.consumed)]) != act.consumed:
            return State.FAIL, act
        del session.queue[: len(act.consumed)]
        for number, node in enumerate(act.nodes):
            key = act.consumed[number] if number < len(act.consumed) else None
            session.nodes.append(StoredNode(node, session.leaf, key))
            session.leaf = node
        session.revision += 1
        session.turns[act.turn] = session.revision
        return State.OK, msgspec.structs.replace(act, revision=session.revision)


_BEGINNINGS: Final[tuple[Callable[[Simulation, _Client, str], Act], ...]] = (
    Simulation.read,
    Simulation.read,
    Simulation.acquire,
    Simulation.enqueue,
    Simulation.enqueue,
    Simulation.commit,
    Simulation.commit,
    Simulation.commit,
    Simulation.renew,
    Simulation.complete,
    Simulation.offer,
    Simulation.append,
    Simulation.count,
)
