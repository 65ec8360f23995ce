"""The queries of the work list on SQLite."""

from __future__ import annotations

import random
from typing import Protocol, TypeVar

import msgspec

from lash.backend.work import random_place
from lash.errors import CorruptData
from lash.plan.work import MAX_HOLDERS, HeldRow, WorkAnswer, WorkChange, WorkPoll
from lash.plan.worker import FleetRow
from lash.sqlite.engine.database import Database, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.worker import beat
from lash.sqlkit.rows import Number, Text

T = TypeVar("T")


class SQLiteWorkRows:
    """The work list of one SQLite storage; the contract is `lash.stores.work.WorkRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def poll(self, poll: WorkPoll) -> WorkAnswer:
        worker = poll.beat
        if worker is None:
            return _poll(_Apart(self._database), poll)
        return await self._database.write_briefly(lambda write: _poll(write, poll, beat(write, worker)))

    async def wake(self, limit: int) -> list[str]:
        def body(transaction: Transaction) -> list[str]:
            taken = {row.number for row in transaction.all(Number, "work_take_wakes", limit=limit)}
            now_ms = transaction.now_ms
            woken = (transaction.one(_Woken, "work_wake_session", session_key=key, now_ms=now_ms) for key in taken)
            return [row.session_id for row in woken if row is not None and row.session_id is not None]

        return await self._database.write_briefly(body)

    async def schema(self) -> int:
        found = self._database.read(lambda reader: reader.one(Number, "schema_version"))
        return 0 if found is None else found.number


class _Source(Protocol):
    """Where a poll reads."""

    @property
    def now_ms(self) -> int: ...

    def one(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> T | None: ...

    def all(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> list[T]: ...


class _Apart:
    """Runs each query on a snapshot of its own, which saves the begin and the end of a transaction.

    What is written between two of them is followed by a hint, and so by another poll.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.now_ms = database.now_ms

    def one(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> T | None:
        rows = self.all(shape, name, **parameters)
        return rows[0] if rows else None

    def all(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> list[T]:
        return self._database.ask(shape, name, **parameters)


def change_work(transaction: Transaction, process_key: int, change: WorkChange) -> None:
    """Write the change of the work list by an event, in the transaction of the event."""
    if change.wakes:
        transaction.run("work_wake_own", process_key=process_key, now_ms=transaction.now_ms)
    if change.continues:
        transaction.run("work_forget_effects", process_key=process_key)
        transaction.run("work_forget_groups", process_key=process_key)
    if change.ends:
        transaction.run("work_end", process_key=process_key)
    if change.wakes_parent:
        transaction.run("work_wake_parent", process_key=process_key, now_ms=transaction.now_ms)


class _Marks(msgspec.Struct, frozen=True, array_like=True):
    """Which lists are not empty, and when something becomes ready without a write."""

    any_sessions: bool
    any_processes: bool
    others_hold_sessions: bool
    others_hold_processes: bool
    next_at_ms: int | None
    timer_at_ms: int | None
    schema: int
    any_wakes: bool
    only_session_id: str | None
    """The session of the only batch that is ready, if a worker without agents and labels could claim it."""


class _Ready(msgspec.Struct, frozen=True, array_like=True):
    """A session that can be claimed, and the number of its lane."""

    lane: int
    session_id: str


class _Woken(msgspec.Struct, frozen=True, array_like=True):
    """A session whose parked turn is ready; None if none of its turns is parked."""

    session_id: str | None


def _poll(reader: _Source, poll: WorkPoll, fleet: FleetRow | None = None) -> WorkAnswer:
    now_ms, owner = reader.now_ms, poll.owner
    boot_id = None if owner.process is None else owner.process.boot_id
    marks = reader.one(_Marks, "work_marks", boot_id=boot_id, incarnation_id=owner.incarnation_id, now_ms=now_ms)
    if marks is None:
        raise CorruptData("query work_marks returned no row")
    urgent, resumed, waiting, newest = _ready_sessions(reader, poll, marks)
    return WorkAnswer(
        now_ms=now_ms,
        urgent_ids=urgent,
        resumed_ids=resumed,
        waiting_ids=waiting,
        newest_ids=newest,
        process_ids=_ready_processes(reader, poll) if marks.any_processes else [],
        commanded_session_ids=_commanded(reader, poll) if poll.running_sessions and marks.any_sessions else [],
        cancelled_process_ids=_cancelled(reader, poll) if poll.running_processes else [],
        held_sessions=_held(reader, poll, "work_session_holders", "work_held_sessions", poll.sessions)
        if marks.others_hold_sessions
        else [],
        held_processes=_held(reader, poll, "work_process_holders", "work_held_processes", poll.processes)
        if marks.others_hold_processes
        else [],
        next_at_ms=marks.next_at_ms,
        timer_at_ms=marks.timer_at_ms,
        schema=marks.schema,
        any_wakes=marks.any_wakes,
        fleet=fleet,
    )


def _ready_sessions(reader: _Source, poll: WorkPoll, marks: _Marks) -> tuple[list[str], ...]:
    """Return the sessions of the four lanes."""
    lanes: tuple[list[str], ...] = ([], [], [], [])
    if not marks.any_sessions:
        return lanes
    only = marks.only_session_id
    if only is not None and poll.sessions and poll.agents is None and poll.labels is None:
        # It waits for its turn, and is the newest.
        return [], [], [only], [only]
    for row in _found(reader, poll):
        lanes[row.lane].append(row.session_id)
    return lanes


def _found(reader: _Source, poll: WorkPoll) -> list[_Ready]:
    limit, now_ms = poll.sessions, reader.now_ms
    # In random order: the due input of one agent may be as much as is read.
    agents = None if poll.agents is None else json_array(random.sample(poll.agents, len(poll.agents)))
    if poll.labels is not None:
        given: dict[str, SQLiteValue] = {"agents": agents, "labels": poll.labels, "place": random_place()}
        return reader.all(_Ready, "work_sessions_of_labels", **given, limit=limit, now_ms=now_ms)
    if agents is not None:
        return reader.all(_Ready, "work_sessions_of_agents", agents=agents, limit=limit, now_ms=now_ms)
    return reader.all(_Ready, "work_sessions", limit=limit, now_ms=now_ms)


def _ready_processes(reader: _Source, poll: WorkPoll) -> list[str]:
    return _texts(
        reader,
        "work_processes",
        limit=poll.processes,
        owner_id=poll.owner.owner_id,
        incarnation_id=poll.owner.incarnation_id,
        process_names=None if poll.process_names is None else json_array(poll.process_names),
        labels=poll.labels,
        now_ms=reader.now_ms,
    )


def _commanded(reader: _Source, poll: WorkPoll) -> list[str]:
    return _texts(reader, "work_commanded", session_ids=json_array(poll.running_sessions), now_ms=reader.now_ms)


def _cancelled(reader: _Source, poll: WorkPoll) -> list[str]:
    return _texts(reader, "work_cancelled", process_ids=json_array(poll.running_processes))


def _texts(reader: _Source, query: str, **parameters: SQLiteValue) -> list[str]:
    return [row.text for row in reader.all(Text, query, **parameters)]


def _held(reader: _Source, poll: WorkPoll, holders: str, held: str, limit: int) -> list[HeldRow]:
    """Return some live leases of each other holder on the same machine."""
    own = poll.owner.process
    if own is None or limit == 0:
        return []
    others = reader.all(Text, holders, boot_id=own.boot_id, incarnation_id=poll.owner.incarnation_id, limit=MAX_HOLDERS)
    return [
        row
        for other in others
        for row in reader.all(
            HeldRow,
            held,
            boot_id=own.boot_id,
            host_id=own.host_id,
            incarnation_id=other.text,
            limit=limit,
            now_ms=reader.now_ms,
        )
    ]
