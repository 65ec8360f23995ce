"""Commits of many callers in few statements: what waits while some are written shares the next one."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import deque
from collections.abc import Iterator
from typing import Final, TypeAlias

from lash.errors import StorageFailure, StoreUnavailable
from lash.postgres.commit_record import MAX_TOGETHER, PlannedCommit, statement_for
from lash.postgres.database import Database
from lash.sqlkit.rows import Number

_LANES: Final = 2
"""How many statements are under way before others wait to be written together."""
_STUCK_S: Final = 0.05
"""A statement without an answer for so long waits for a session that somebody has locked; others do not wait for it."""

Waiting: TypeAlias = tuple[PlannedCommit, asyncio.Future[bool]]


class CommitGroups:
    """Writes planned commits, each whole or not at all. A commit that meets no other is sent at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[Waiting] = deque()
        self._under_way: dict[object, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None

    async def write(self, commit: PlannedCommit) -> bool:
        """Return whether the guard let the commit pass; raise what stood in the way of asking."""
        loop = asyncio.get_running_loop()
        if self._has_free_lane(loop):
            with self._lane(loop):
                return await self._write_alone(commit)
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((commit, future))
        self._go_on(loop)
        return await future

    def _has_free_lane(self, loop: asyncio.AbstractEventLoop) -> bool:
        now = loop.time()
        return sum(now - began < _STUCK_S for began in self._under_way.values()) < _LANES

    @contextlib.contextmanager
    def _lane(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        statement = object()
        self._under_way[statement] = loop.time()
        try:
            yield
        finally:
            del self._under_way[statement]
            self._go_on(loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with those that wait if there is room, and look again when statements may be stuck."""
        if self._waiting and self._has_free_lane(loop):
            # One is enough: it takes as many as fit, and comes here again when it has its lane.
            task = loop.create_task(self._write_next(loop), name="lash-commits")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._waiting and self._alarm is None:
            self._alarm = loop.call_later(_STUCK_S, self._look_again, loop)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        self._go_on(loop)

    async def _write_next(self, loop: asyncio.AbstractEventLoop) -> None:
        group = self._next_group()
        if not group:
            return
        try:
            with self._lane(loop):
                self._go_on(loop)
                await (self._settle_alone(*group[0]) if len(group) == 1 else self._settle_together(group))
        finally:
            # Whatever ended this, nobody is left waiting for it.
            for _, future in group:
                future.cancel()

    def _next_group(self) -> list[Waiting]:
        """Take those that wait longest, one of each session, without those whose callers are gone."""
        group: list[Waiting] = []
        later: list[Waiting] = []
        sessions: set[int] = set()
        while self._waiting and len(group) < MAX_TOGETHER:
            commit, future = self._waiting.popleft()
            if future.done():
                continue
            (later if commit.session_key in sessions else group).append((commit, future))
            sessions.add(commit.session_key)
        self._waiting.extendleft(reversed(later))
        return group

    async def _settle_together(self, group: list[Waiting]) -> None:
        commits = [commit for commit, _ in group]
        try:
            written = await self._write_all(commits)
        except Exception as error:  # noqa: BLE001 (whatever it is, those who wait must hear of it)
            await self._settle_one_by_one(group, error)
            return
        for commit, future in group:
            if not future.done():
                future.set_result(commit.session_key in written)

    async def _settle_one_by_one(self, group: list[Waiting], error: Exception) -> None:
        """Find out whom an error concerns. What may have been written and cannot be repeated is not."""
        is_unknown = isinstance(error, StoreUnavailable | StorageFailure) and error.outcome_unknown
        again: list[Waiting] = []
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
        except Exception as error:  # noqa: BLE001 (whatever it is, the one who waits must hear of it)
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
        name, arguments = statement_for(commits)
        rows = await self._database.write_all(Number, name, *arguments, repeatable=repeatable)
        return {row.number for row in rows}
