"""Commits of many callers in few statements: what waits while some are written shares the next one."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from typing import Final

from lash.errors import LashError, StorageFailure, StoreUnavailable
from lash.postgres.commit_record import MAX_TOGETHER, PlannedCommit, arguments_of
from lash.postgres.database import Database
from lash.sqlkit.rows import Number

_LANES: Final = 2
"""How many statements are under way before others wait to be written together."""
_STUCK_S: Final = 0.05
"""After so long without an answer, some session is locked: others must not wait for it."""


class CommitGroups:
    """Writes planned commits, each whole or not at all. A commit that meets no other is sent at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[tuple[PlannedCommit, asyncio.Future[bool]]] = deque()
        self._under_way = 0
        self._heard_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, commit: PlannedCommit) -> bool:
        """Return whether the guard let the commit pass; raise what stood in the way of asking."""
        loop = asyncio.get_running_loop()
        if self._may_begin(loop.time()):
            self._begin(loop.time())
            try:
                return await self._write_alone(commit)
            finally:
                self._end(loop.time())
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((commit, future))
        return await future

    def _may_begin(self, now: float) -> bool:
        return self._under_way < _LANES or now - self._heard_at > _STUCK_S

    def _begin(self, now: float) -> None:
        if not self._under_way:
            self._heard_at = now
        self._under_way += 1

    def _end(self, now: float) -> None:
        self._under_way -= 1
        self._heard_at = now
        while self._waiting and self._may_begin(now):
            self._begin(now)
            task = asyncio.get_running_loop().create_task(self._write_next(), name="lash-commits")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write_next(self) -> None:
        try:
            group = self._next_group()
            if len(group) == 1:
                await self._settle_alone(*group[0])
            elif group:
                await self._settle_together(group)
        finally:
            self._end(asyncio.get_running_loop().time())

    def _next_group(self) -> list[tuple[PlannedCommit, asyncio.Future[bool]]]:
        """Take those that wait longest, one of each session, without those whose callers are gone."""
        group: list[tuple[PlannedCommit, asyncio.Future[bool]]] = []
        later: list[tuple[PlannedCommit, asyncio.Future[bool]]] = []
        sessions: set[int] = set()
        while self._waiting and len(group) < MAX_TOGETHER:
            commit, future = self._waiting.popleft()
            if future.done():
                continue
            (later if commit.session_key in sessions else group).append((commit, future))
            sessions.add(commit.session_key)
        self._waiting.extendleft(reversed(later))
        return group

    async def _settle_together(self, group: list[tuple[PlannedCommit, asyncio.Future[bool]]]) -> None:
        commits = [commit for commit, _ in group]
        try:
            written = await self._write_all(commits)
        except LashError as error:
            await self._settle_one_by_one(group, error)
            return
        for commit, future in group:
            if not future.done():
                future.set_result(commit.session_key in written)

    async def _settle_one_by_one(
        self, group: list[tuple[PlannedCommit, asyncio.Future[bool]]], error: LashError
    ) -> None:
        """Find out whom an error concerns. What may have been written and cannot be repeated is not."""
        is_unknown = isinstance(error, StoreUnavailable | StorageFailure) and error.outcome_unknown
        again: list[tuple[PlannedCommit, asyncio.Future[bool]]] = []
        for commit, future in group:
            if commit.is_repeatable or not is_unknown:
                again.append((commit, future))
            elif not future.done():
                # Each caller raises an exception of its own: a shared one would collect all their tracebacks.
                future.set_exception(copy.copy(error))
        # At once: one that waits for a lock must not keep the others.
        await asyncio.gather(*(self._settle_alone(*each) for each in again))

    async def _settle_alone(self, commit: PlannedCommit, future: asyncio.Future[bool]) -> None:
        try:
            passed = await self._write_alone(commit)
        except LashError as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(passed)

    async def _write_alone(self, commit: PlannedCommit) -> bool:
        return commit.session_key in await self._write_all([commit])

    async def _write_all(self, commits: list[PlannedCommit]) -> set[int]:
        """Send commits in one statement, and return the keys of the sessions whose guard let them pass."""
        repeatable = all(commit.is_repeatable for commit in commits)
        rows = await self._database.write_all(Number, "commit_apply", *arguments_of(commits), repeatable=repeatable)
        return {row.number for row in rows}
