"""The work list on SQLite."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from lash.errors import CorruptData
from lash.model.lease import LeaseOwner
from lash.model.work import WorkList
from lash.plan.work import (
    MAX_HOLDERS,
    HeldRow,
    Look,
    WorkAnswer,
    WorkChange,
    check_look,
    decode_work,
)
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlkit.rows import Text


class SQLiteWorkStore:
    """The work list of one SQLite storage; the contract is `lash.stores.work.WorkStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
    ) -> WorkList:
        wanted = check_look(sessions, processes, owner, running_sessions, running_processes)
        return self._database.read(lambda reader: _look(reader, wanted))


def change_work(transaction: Transaction, process_key: int, change: WorkChange) -> None:
    """Carry out what an event means for the work list, in its transaction."""
    if change.wakes:
        transaction.run("work_wake_own", process_key=process_key, now_ms=transaction.now_ms)
    if change.ends:
        transaction.run("work_end", process_key=process_key)
    if change.wakes_parent:
        transaction.run("work_wake_parent", process_key=process_key, now_ms=transaction.now_ms)


class _Marks(msgspec.Struct, frozen=True, array_like=True):
    """Which lists have anything in them, and when something becomes ready by itself."""

    any_sessions: bool
    any_processes: bool
    others_hold_sessions: bool
    others_hold_processes: bool
    next_at_ms: int | None
    timer_at_ms: int | None


def _look(reader: Reader, look: Look) -> WorkList:
    now_ms, owner = reader.now_ms, look.owner
    boot_id = None if owner.process is None else owner.process.boot_id
    marks = reader.one(_Marks, "work_marks", boot_id=boot_id, incarnation_id=owner.incarnation_id, now_ms=now_ms)
    if marks is None:
        raise CorruptData("a query that always answers did not")
    answer = WorkAnswer(
        now_ms=now_ms,
        session_ids=_ready_sessions(reader, look) if marks.any_sessions else [],
        process_ids=_ready_processes(reader, look) if marks.any_processes else [],
        commanded_session_ids=_commanded(reader, look) if look.running_sessions and marks.any_sessions else [],
        cancelled_process_ids=_cancelled(reader, look) if look.running_processes else [],
        held_sessions=_held(reader, look, "work_session_holders", "work_held_sessions", look.sessions)
        if marks.others_hold_sessions
        else [],
        held_processes=_held(reader, look, "work_process_holders", "work_held_processes", look.processes)
        if marks.others_hold_processes
        else [],
        next_at_ms=marks.next_at_ms,
        timer_at_ms=marks.timer_at_ms,
    )
    return decode_work(answer)


def _ready_sessions(reader: Reader, look: Look) -> list[str]:
    return _texts(reader, "work_sessions", limit=look.sessions, now_ms=reader.now_ms)


def _ready_processes(reader: Reader, look: Look) -> list[str]:
    return _texts(
        reader,
        "work_processes",
        limit=look.processes,
        owner_id=look.owner.owner_id,
        incarnation_id=look.owner.incarnation_id,
        now_ms=reader.now_ms,
    )


def _commanded(reader: Reader, look: Look) -> list[str]:
    return _texts(reader, "work_commanded", session_ids=json_array(look.running_sessions), now_ms=reader.now_ms)


def _cancelled(reader: Reader, look: Look) -> list[str]:
    return _texts(reader, "work_cancelled", process_ids=json_array(look.running_processes))


def _texts(reader: Reader, query: str, **parameters: SQLiteValue) -> list[str]:
    return [row.text for row in reader.all(Text, query, **parameters)]


def _held(reader: Reader, look: Look, holders: str, held: str, limit: int) -> list[HeldRow]:
    """Return some live leases of each other holder on the same machine."""
    own = look.owner.process
    if own is None or limit == 0:
        return []
    others = reader.all(Text, holders, boot_id=own.boot_id, incarnation_id=look.owner.incarnation_id, limit=MAX_HOLDERS)
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
