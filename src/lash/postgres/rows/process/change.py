"""Reads of the change feed on PostgreSQL, and a warning when another transaction holds it back."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from lash.errors import CorruptData, LashError
from lash.plan.process.change import ChangeCursor, ChangeRow, EventTailRow, FeedState, SeenChangeRow
from lash.postgres.engine.database import Database

_LOG: Final = logging.getLogger("lash.postgres")
_PATIENCE_S: Final = 5.0
"""How long a transaction may hold the feed back before a warning names it; ordinary ones take milliseconds."""

_Answer = TypeVar("_Answer", bound="_FeedAnswer")


class _FeedAnswer(FeedState, frozen=True, array_like=True):
    """The state of the feed, and the transaction that holds changes back."""

    held_by: str | None


class _ChangesAnswer(_FeedAnswer, frozen=True, array_like=True):
    rows: list[ChangeRow]


class _TailAnswer(_FeedAnswer, frozen=True, array_like=True):
    rows: list[EventTailRow]


class _SeenAnswer(_FeedAnswer, frozen=True, array_like=True):
    rows: list[SeenChangeRow]


class _Holder(msgspec.Struct, frozen=True, array_like=True):
    """The owner of a running transaction; the server may hide all but the first four."""

    pid: int | None
    database: str | None
    user: str | None
    name: str | None
    state: str | None
    age_s: float | None

    @property
    def text(self) -> str:
        owner = f"prepared transaction {self.name!r}" if self.pid is None else f"pid {self.pid}"
        parts = [owner, f"database {self.database!r}", f"user {self.user!r}"]
        if self.pid is not None:
            parts += [f"application {self.name!r}"]
            parts += [self.state] if self.state else []
        return ", ".join(parts)

    @property
    def remedy(self) -> str:
        return "a rollback of that name" if self.pid is None else f"pg_terminate_backend({self.pid})"


class ChangeFeed:
    """Reads the change feed of one storage. A change becomes visible when all older transactions have ended.

    That includes transactions of other databases of the server. While one transaction holds changes back that a reader
    waits for, for longer than five seconds, it is named in the log, once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._holder: str | None = None
        self._held_since = 0.0
        self._reported = False

    async def changes(self, after: ChangeCursor, limit: int) -> tuple[Sequence[ChangeRow], FeedState]:
        answer = await self._read(_ChangesAnswer, "process_changes_after", after, limit)
        return answer.rows, answer

    async def tail(self, after: ChangeCursor, limit: int) -> tuple[Sequence[EventTailRow], FeedState]:
        answer = await self._read(_TailAnswer, "event_tail", after, limit)
        return answer.rows, answer

    async def seen(
        self, session_id: str, after: ChangeCursor, limit: int
    ) -> tuple[Sequence[SeenChangeRow], FeedState] | None:
        """Return changes that a session may see; None if it does not exist."""
        answer = await self._ask(_SeenAnswer, "activity_process_changes", after, limit, session_id)
        return None if answer is None else (answer.rows, answer)

    async def end(self) -> ChangeCursor:
        end = await self._database.read_one(ChangeCursor, "change_end")
        if end is None:
            raise CorruptData("query change_end returned no row")
        return end

    async def note(self, held_by: str | None) -> None:
        """Note the transaction that holds changes back at a read, None if none does; warn if it is still the same."""
        now = time.monotonic()
        if held_by is None or held_by != self._holder:
            self._holder, self._held_since, self._reported = held_by, now, False
        elif not self._reported and now - self._held_since >= _PATIENCE_S:
            self._reported = True
            await self._warn(held_by, now - self._held_since)

    async def _warn(self, transaction_id: str, held_s: float) -> None:
        try:
            holder = await self._database.read_one(_Holder, "change_holder", transaction_id)
        except LashError:
            holder = None
        age_s = held_s if holder is None or holder.age_s is None else holder.age_s
        _LOG.warning(
            "the change feed waits for a transaction that has been open for %.0f s: %s; observers see changes of "
            "processes when it ends. Look at pg_stat_activity and pg_prepared_xacts; it can be ended with %s",
            age_s,
            f"transaction {transaction_id}" if holder is None else holder.text,
            "pg_terminate_backend" if holder is None else holder.remedy,
        )

    async def _read(self, shape: type[_Answer], query: str, after: ChangeCursor, limit: int) -> _Answer:
        answer = await self._ask(shape, query, after, limit)
        if answer is None:
            raise CorruptData(f"query {query} returned no row")
        return answer

    async def _ask(
        self, shape: type[_Answer], query: str, after: ChangeCursor, limit: int, *arguments: object
    ) -> _Answer | None:
        position = (str(after.transaction_id), after.seq)
        answer = await self._database.read_one(shape, query, *position, limit, *arguments)
        if answer is not None:
            await self.note(answer.held_by)
        return answer
