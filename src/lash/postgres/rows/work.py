"""The queries of the work list on PostgreSQL; the clock of the server decides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.backend.work import random_place
from lash.errors import CorruptData
from lash.plan.process.process import ProcessRow
from lash.plan.work import MAX_HOLDERS, WorkAnswer, WorkPoll
from lash.plan.worker import GONE_BEATS, LATE_BEATS, WorkerRow
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Number, Text


class _Answer(WorkAnswer, frozen=True, array_like=True):
    """The answer to a poll, with the rows of the processes that the caller is about to claim, unless they are long."""

    processes: list[ProcessRow]


class PostgresWorkRows:
    """The work list of one PostgreSQL storage; the contract is `lash.stores.work.WorkRows`."""

    def __init__(self, database: Database, cache: ProcessCache) -> None:
        self._database = database
        self._cache = cache

    async def poll(self, poll: WorkPoll) -> WorkAnswer:
        own = poll.owner.process
        arguments = (
            *(poll.sessions, poll.processes, poll.owner.owner_id, poll.owner.incarnation_id),
            *((None, None) if own is None else (own.boot_id, own.host_id)),
            *(list(poll.running_sessions) or None, list(poll.running_processes) or None, MAX_HOLDERS),
            None if poll.process_names is None else list(poll.process_names),
            None if poll.agents is None else list(poll.agents),
            *(poll.labels, random_place()),
        )
        answer = await self._ask(arguments, poll.beat)
        if answer is None:
            raise CorruptData("query work_poll returned no row")
        self._cache.remember_all(answer.processes)
        return answer

    async def wake(self, limit: int) -> list[str]:
        # A repeat after a lost answer finds fewer reasons; the sessions of the first try are found by a poll.
        woken = await self._database.write_all(Text, "work_wake_sessions", limit, repeatable=True)
        return [row.text for row in woken]

    async def _ask(self, arguments: Sequence[object], beat: WorkerRow | None) -> _Answer | None:
        if beat is None:
            return await self._database.read_one(_Answer, "work_poll", *arguments)
        worker = msgspec.json.encode(msgspec.structs.asdict(beat)).decode()
        return await self._database.write_one(
            _Answer, "work_beat", *arguments, worker, LATE_BEATS, GONE_BEATS, repeatable=True
        )

    async def schema(self) -> int:
        found = await self._database.read_one(Number, "schema_version")
        return 0 if found is None else found.number
