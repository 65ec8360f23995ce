"""Statements about processes that concurrent callers of one storage share on PostgreSQL.

SQLite has no counterpart: there the writer commits in groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

import msgspec

from lash.plan.lease import LeaseRow
from lash.plan.process.process import ProcessRow
from lash.postgres.arguments import columns
from lash.postgres.engine.batcher import StatementBatcher
from lash.postgres.engine.database import Database

MAX_TOGETHER: Final = 32
"""How many processes one statement takes; the statements have the same LIMIT, for the estimates of the planner."""

Arguments: TypeAlias = tuple[object, ...]
"""The arguments of one process, in the order of the statement's arrays."""


class ProcessAcquireAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The position of a process, its lease row before a claim, and the row after it if the lease was acquired.

    ``wake_seq`` is the number of reasons to run if it was acquired. ``has_effects`` is true if the process may have
    recorded effects, ``started`` if the event of the start was appended. ``crashes`` is how many runs crashed.
    """

    process_key: int
    now_ms: int
    last_sequence: int
    wake_session_id: str | None
    before: LeaseRow
    taken: LeaseRow | None
    wake_seq: int | None
    has_effects: bool
    started: bool
    crashes: int


class ProcessEndAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A process that was ended, and when."""

    process_key: int
    now_ms: int


class ProcessBatches:
    """Reads, claims and ends of processes; concurrent callers share statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: StatementBatcher[str, ProcessRow] = StatementBatcher(self._read_all, limit=MAX_TOGETHER)
        self._acquisitions: StatementBatcher[Arguments, ProcessAcquireAnswer] = StatementBatcher(
            self._acquire_all, limit=MAX_TOGETHER
        )
        self._ends: StatementBatcher[Arguments, ProcessEndAnswer] = StatementBatcher(self._end_all, limit=MAX_TOGETHER)

    async def read(self, process_id: str) -> ProcessRow | None:
        """Return the row of a process; None if there is none."""
        return await self._reads.submit(process_id, process_id)

    async def acquire(self, process_key: int, arguments: Arguments) -> ProcessAcquireAnswer | None:
        """Run ``process_lease_acquire``; None if the process does not exist."""
        return await self._acquisitions.submit(process_key, arguments)

    async def end(self, process_key: int, arguments: Arguments) -> ProcessEndAnswer | None:
        """Run ``process_lease_complete``; None if its guard refused the end."""
        return await self._ends.submit(process_key, arguments)

    async def _read_all(self, process_ids: Mapping[Hashable, str]) -> Mapping[Hashable, ProcessRow]:
        rows = await self._database.read_all(ProcessRow, "process_rows", list(process_ids.values()))
        return {row.process_id: row for row in rows}

    async def _acquire_all(self, asked: Mapping[Hashable, Arguments]) -> Mapping[Hashable, ProcessAcquireAnswer]:
        # Safe to repeat after a lost connection: the same holder then re-enters.
        answers = await self._database.write_all(
            ProcessAcquireAnswer, "process_lease_acquire", *columns(asked.values()), repeatable=True
        )
        return {answer.process_key: answer for answer in answers}

    async def _end_all(self, asked: Mapping[Hashable, Arguments]) -> Mapping[Hashable, ProcessEndAnswer]:
        # A repetition after a lost connection is refused; the facts then hold the end.
        answers = await self._database.write_all(
            ProcessEndAnswer, "process_lease_complete", *columns(asked.values()), repeatable=True
        )
        return {answer.process_key: answer for answer in answers}
