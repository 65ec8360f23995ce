"""The work list of every backend."""

from __future__ import annotations

import random
from collections.abc import Collection

from lash.base.limits import check_limit
from lash.errors import CorruptData, SchemaMismatch, StorageFailure
from lash.model.lease import LeaseOwner
from lash.model.work import WorkList
from lash.model.worker import Beat
from lash.plan.work import check_poll, check_schema, decode_work
from lash.stores.hints import Hints
from lash.stores.work import WorkRows


def random_place() -> float:
    """Return where a poll by labels begins to read, from 0 to 1: at the beginning as often as anywhere else."""
    return max(0.0, random.uniform(-1, 1))  # noqa: S311 (no secret)


class Work:
    """The work list of one storage; the contract is `lash.stores.work.WorkStore`."""

    def __init__(self, rows: WorkRows, hints: Hints, known_schema: int) -> None:
        self._rows = rows
        self._hints = hints
        self._known_schema = known_schema

    async def poll(
        self,
        *,
        sessions: int,
        processes: int,
        owner: LeaseOwner,
        running_sessions: Collection[str] = (),
        running_processes: Collection[str] = (),
        beat: Beat | None = None,
        process_names: Collection[str] | None = None,
        agents: Collection[str] | None = None,
        labels: dict[str, str] | None = None,
    ) -> WorkList:
        running = (running_sessions, running_processes)
        poll = check_poll(sessions, processes, owner, *running, beat, process_names, agents, labels)
        try:
            answer = await self._rows.poll(poll)
        except (CorruptData, SchemaMismatch, StorageFailure):
            # A newer schema may lack what the query reads, or hold what this version cannot.
            await self.check_schema()
            raise
        check_schema(answer.schema, self._known_schema)
        return decode_work(answer)

    async def wake(self, *, limit: int = 1_000) -> tuple[str, ...]:
        woken = tuple(await self._rows.wake(check_limit(limit)))
        for session_id in woken:
            self._hints.notify(process=False, session_id=session_id)
        return woken

    async def check_schema(self) -> None:
        check_schema(await self._rows.schema(), self._known_schema)
