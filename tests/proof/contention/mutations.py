"""Ways to falsify a valid history, each by one false entry, for the tests of the checker.

Each takes the operations and the stored rows and returns both with one false entry, and the law that it breaks; None
if this history offers no place for it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from tests.proof.contention.history import (
    AcquireAct,
    Act,
    AppendAct,
    CommitAct,
    CountAct,
    FencedAct,
    OfferAct,
    Operation,
    ReadAct,
    State,
)
from tests.proof.contention.verdict import Law, Stored, StoredLabels, StoredNode, StoredSession

A = TypeVar("A", bound=Act)

Spoiled: TypeAlias = tuple[list[Operation], Stored, Law] | None
Mutation: TypeAlias = Callable[[random.Random, Sequence[Operation], Stored], Spoiled]


def stale_read(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A read that began after a commit was acknowledged does not see it."""
    for place, operation, act in _shuffled(chance, history, ReadAct):
        before = [
            each.act
            for each in history
            if isinstance(each.act, CommitAct)
            and each.state is State.OK
            and each.act.session == act.session
            and each.ended_before(operation)
        ]
        if before and operation.state is State.OK:
            old = before[-1]
            lie = msgspec.structs.replace(act, revision=old.expected, leaf=old.seen_leaf)
            return _changed(history, place, lie), stored, Law.REGISTER
    return None


def lost_update(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A commit that was refused because another was first is recorded as successful."""
    for place, operation, act in _shuffled(chance, history, CommitAct):
        if operation.state is State.FAIL and act.actual is not None:
            lie = msgspec.structs.replace(act, actual=None, revision=act.expected + 1)
            return _changed(history, place, lie, State.OK), stored, Law.REGISTER
    return None


def vanished_commit(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """The last commit of a session was acknowledged and is missing."""
    for _, operation, act in _shuffled(chance, history, CommitAct):
        kept = stored.sessions[act.session]
        if operation.state is State.OK and act.revision == kept.revision:
            turns = {turn: revision for turn, revision in kept.turns.items() if turn != act.turn}
            nodes = kept.nodes[: -len(act.nodes)]
            rolled_back = StoredSession(kept.revision - 1, act.seen_leaf, nodes, turns, kept.queued + act.consumed)
            return list(history), _with_session(stored, act.session, rolled_back), Law.TURN
    return None


def torn_commit(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A node is missing from the middle of the history."""

    def tear(nodes: list[StoredNode]) -> list[StoredNode]:
        del nodes[chance.randrange(len(nodes))]
        return nodes

    return _with_nodes(chance, history, stored, tear, Law.CHAIN)


def forked_chain(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A node has another parent than the node before it."""

    def fork(nodes: list[StoredNode]) -> list[StoredNode]:
        at = chance.randrange(1, len(nodes))
        nodes[at] = dataclasses.replace(nodes[at], parent=nodes[at - 2].node_id if at > 1 else None)
        return nodes

    return _with_nodes(chance, history, stored, fork, Law.CHAIN)


def double_consumption(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """An input that was consumed is still in the queue."""
    for name, kept in _sessions(chance, stored):
        if kept.consumed:
            queued = (*kept.queued, chance.choice(kept.consumed))
            return (
                list(history),
                _with_session(stored, name, dataclasses.replace(kept, queued=queued)),
                Law.CONSUMED_ONCE,
            )
    return None


def vanished_input(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """An input that was acknowledged is neither queued nor consumed."""
    acknowledged = {each.act.key for each in history if each.state is State.OK and hasattr(each.act, "key")}
    for name, kept in _sessions(chance, stored):
        doomed = [key for key in kept.queued if key in acknowledged]
        if doomed:
            queued = tuple(key for key in kept.queued if key != doomed[0])
            return (
                list(history),
                _with_session(stored, name, dataclasses.replace(kept, queued=queued)),
                Law.NOTHING_LOST,
            )
    return None


def invented_input(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """The queue holds an input that no client enqueued."""
    name, kept = _sessions(chance, stored)[0]
    invented = dataclasses.replace(kept, queued=(*kept.queued, "invented"))
    return list(history), _with_session(stored, name, invented), Law.NOTHING_MADE_UP


def same_fence(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """Two acquisitions share one number."""
    taken = [each for each in _shuffled(chance, history, AcquireAct) if each[1].state is State.OK]
    for place, _, act in taken:
        for _, _, other in taken:
            if other.subject == act.subject and other.fencing != act.fencing:
                lie = msgspec.structs.replace(act, fencing=other.fencing)
                return _changed(history, place, lie), stored, Law.FENCES_GROW
    return None


def stale_fence(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A renewal under a fence that is no longer the largest is acknowledged."""
    renewals = [each for each in _shuffled(chance, history, FencedAct) if each[2].outcome is None]
    for place, operation, act in renewals:
        for each in history:
            if (
                isinstance(each.act, AcquireAct)
                and each.state is State.OK
                and each.act.subject == act.subject
                and each.act.fencing > act.fencing
                and each.ended_before(operation)
            ):
                return _changed(history, place, act, State.OK), stored, Law.STALE_FENCE
    return None


def second_end(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """An outcome that was refused because another is stored is acknowledged."""
    for place, operation, act in _shuffled(chance, history, FencedAct):
        outcomes = {
            each.act.outcome
            for each in history
            if isinstance(each.act, FencedAct) and each.act.subject == act.subject and each.state is State.OK
        }
        if act.outcome is not None and operation.state is State.FAIL and outcomes - {None, act.outcome}:
            return _changed(history, place, act, State.OK), stored, Law.SET_ONCE
    return None


def second_outcome(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A caller gets another outcome than the stored one."""
    for place, operation, act in _shuffled(chance, history, OfferAct):
        if operation.state is State.OK and not act.won:
            lie = msgspec.structs.replace(act, standing=act.value, won=True)
            return _changed(history, place, lie), stored, Law.SET_ONCE
    return None


def vanished_event(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """An acknowledged event is missing from the log."""
    acknowledged = [act for _, each, act in _shuffled(chance, history, AppendAct) if each.state is State.OK]
    if not acknowledged:
        return None
    log = tuple(payload for payload in stored.logs["p"] if payload != acknowledged[0].payload)
    return list(history), dataclasses.replace(stored, logs={"p": log}), Law.LOG


def doubled_event(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """An event is in the log twice."""
    log = stored.logs["p"]
    return (list(history), dataclasses.replace(stored, logs={"p": (*log, log[0])}), Law.LOG) if log else None


def lost_increment(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """An increment that was refused because another was first is recorded as successful."""
    counted = [each.act for each in history if isinstance(each.act, CountAct) and each.state is State.OK]
    done = {(act.record, act.expected) for act in counted}
    for place, operation, act in _shuffled(chance, history, CountAct):
        if operation.state is State.FAIL and (act.record, act.expected) in done:
            return _changed(history, place, msgspec.structs.replace(act, actual=None), State.OK), stored, Law.COUNTER
    return None


def vanished_increment(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A record has the value of one increment less than its version."""
    for name, (version, value) in sorted(stored.counters.items()):
        counters = {**stored.counters, name: (version, value - 1)}
        return list(history), dataclasses.replace(stored, counters=counters), Law.COUNTER
    return None


def forgotten_label(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A list does not find a session by one of its labels."""
    for name, each in sorted(stored.labels.items()):
        rest = dict(list(each.found_by.items())[1:])
        labels = {**stored.labels, name: dataclasses.replace(each, found_by=rest)}
        return list(history), dataclasses.replace(stored, labels=labels), Law.LABELS
    return None


def mixed_edits(chance: random.Random, history: Sequence[Operation], stored: Stored) -> Spoiled:
    """A session has the owner of one edit and the labels of another."""
    for name, each in sorted(stored.labels.items()):
        mixed = {**each.held, "": "another"}
        labels = {**stored.labels, name: StoredLabels(mixed, mixed)}
        return list(history), dataclasses.replace(stored, labels=labels), Law.LABELS
    return None


MUTATIONS: Final[tuple[Mutation, ...]] = (
    stale_read,
    lost_update,
    vanished_commit,
    torn_commit,
    forked_chain,
    double_consumption,
    vanished_input,
    invented_input,
    same_fence,
    stale_fence,
    second_end,
    second_outcome,
    vanished_event,
    doubled_event,
    lost_increment,
    vanished_increment,
    forgotten_label,
    mixed_edits,
)


def _shuffled(chance: random.Random, history: Sequence[Operation], kind: type[A]) -> list[tuple[int, Operation, A]]:
    found: list[tuple[int, Operation, A]]
    found = [(place, each, each.act) for place, each in enumerate(history) if isinstance(each.act, kind)]
    chance.shuffle(found)
    return found


def _sessions(chance: random.Random, stored: Stored) -> list[tuple[str, StoredSession]]:
    return chance.sample(sorted(stored.sessions.items(), key=lambda each: each[0]), len(stored.sessions))


def _changed(history: Sequence[Operation], place: int, act: Act, state: State | None = None) -> list[Operation]:
    spoiled = list(history)
    spoiled[place] = msgspec.structs.replace(spoiled[place], act=act, state=state or spoiled[place].state)
    return spoiled


def _with_session(stored: Stored, name: str, session: StoredSession) -> Stored:
    return dataclasses.replace(stored, sessions={**stored.sessions, name: session})


def _with_nodes(
    chance: random.Random,
    history: Sequence[Operation],
    stored: Stored,
    change: Callable[[list[StoredNode]], list[StoredNode]],
    law: Law,
) -> Spoiled:
    for name, kept in _sessions(chance, stored):
        if len(kept.nodes) > 1:
            nodes = tuple(change(list(kept.nodes)))
            return list(history), _with_session(stored, name, dataclasses.replace(kept, nodes=nodes)), law
    return None
