"""What a run can wait for without memory and worker, alone or in a race with others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from lash.errors import InvalidInput
from lash.model.effect import AwaitEvent, Command
from lash.model.value import JSON
from lash.runtime.processes.branch import Closable, close
from lash.runtime.steps.journal import RACE, Journal
from lash.runtime.steps.steps import constant, operation

T = TypeVar("T")


class Waitable(Closable[T]):
    """Something that a turn or process can wait for while it is parked: a pause, a wait, a signal, the end of a child.

    ``await`` it, or pass it to ``wait_any``, ``race`` or ``gather``.
    """

    def __init__(
        self,
        journal: Journal,
        key: str,
        command: Command | None,
        find: Callable[[], Awaitable[JSON]],
        read: Callable[[JSON], T],
    ) -> None:
        """Make an awaitable; without a command its outcome is not recorded, as it is the same in every run."""
        self._journal = journal
        self.key = key
        self.command = command
        self.find = find
        """Returns the outcome, or parks the run until there is one."""
        self.read = read
        """Returns what an outcome means, or raises the error that it means."""
        self.waited_ms = 0
        """How long it had been waited for when `find` returned, runs that were parked meanwhile included."""
        self.on_recorded: Callable[[], Awaitable[None]] | None = None
        """Called after the outcome was recorded."""
        self.on_lost: Callable[[JSON], None] | None = None
        """Called with an outcome that was found but lost a race."""
        # Made here, so that Python warns if it is never awaited.
        self._alone = self._run()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._alone.__await__()

    def close(self) -> None:
        self._alone.close()

    async def _run(self) -> T:
        if self.command is None:
            return self.read(await self.find())
        known = self._journal.peek(self.key, self.command)
        if known is None:
            await self._journal.begin_new()
            outcome = await self.find()
            known = await self._journal.recorded(self.key, self.command, constant(outcome), took_ms=self.waited_ms)
            if self.on_recorded is not None:
                await self.on_recorded()
        return self.read(known.outcome)


class Race:
    """One race of a run. The winner is recorded before the run continues, so every later run has the same."""

    def __init__(self, journal: Journal, key: str, awaitables: tuple[Awaitable[Any], ...]) -> None:
        self._journal = journal
        self._key = key
        self._awaitables = awaitables
        self._command = operation(RACE, len(awaitables))
        self._found: dict[int, JSON] = {}
        """The outcomes of waitables that no record has."""

    async def run(self) -> tuple[int, Any]:
        """Return which awaitable ended first, and its result; raise what it raised."""
        try:
            if not self._awaitables:
                raise InvalidInput("expected at least one awaitable")
            known = self._journal.peek(self._key, self._command)
            if known is not None:
                return await self._again(known.outcome)
            await self._journal.begin_new()
            lines = tuple(self._line(index, each) for index, each in enumerate(self._awaitables))
            return await self._journal.lines.race(self._key, lines, self._won)
        finally:
            for awaitable in self._awaitables:
                close(awaitable)
            for index, outcome in self._found.items():
                self._give_back(self._awaitables[index], outcome)

    def _line(self, index: int, awaitable: Awaitable[Any]) -> Awaitable[Any]:
        return self._find(index, awaitable) if isinstance(awaitable, Waitable) else awaitable

    async def _find(self, index: int, waitable: Waitable[Any]) -> JSON:
        self._found[index] = await waitable.find()
        return self._found[index]

    async def _again(self, outcome: JSON) -> tuple[int, Any]:
        """Return what the recorded winner returned; the losers do not run again."""
        kept = outcome if isinstance(outcome, dict) else {}
        index = int(str(kept.get("winner")))
        winner = self._awaitables[index]
        if not isinstance(winner, Waitable):
            return index, await self._journal.lines.again(self._key, index, winner)
        return index, winner.read(kept["outcome"] if "outcome" in kept else await winner.find())

    async def _won(self, index: int, task: asyncio.Task[Any]) -> tuple[int, Any]:
        """Record the winner; one that failed is recorded once the function continues after the failure."""
        winner, outcome = self._awaitables[index], {"winner": index}
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            if isinstance(error, Exception):
                self._journal.fail_later(self._key, self._command, outcome)
            raise error
        if not isinstance(winner, Waitable):
            await self._journal.recorded(self._key, self._command, constant(outcome))
            return index, task.result()
        # One record for the wait and the race: a wait that loses is not recorded at all.
        await self._journal.recorded(self._key, self._command, constant(outcome | _as_winner(winner, task.result())))
        del self._found[index]
        if winner.on_recorded is not None:
            await winner.on_recorded()
        return index, winner.read(task.result())

    def _give_back(self, awaitable: Awaitable[Any], outcome: JSON) -> None:
        if isinstance(awaitable, Waitable) and awaitable.on_lost is not None:
            awaitable.on_lost(outcome)


def _as_winner(winner: Waitable[Any], outcome: JSON) -> dict[str, JSON]:
    if isinstance(winner.command, AwaitEvent):
        return {"key_id": winner.command.key_id, "outcome": outcome}
    return {"outcome": outcome}
