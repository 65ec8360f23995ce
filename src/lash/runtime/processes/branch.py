"""Tracks concurrent branches of a durable function, so that its steps have the same names in every run."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

from lash.errors import ConfigError
from lash.model.effect import EffectError, Envelope


class Branch:
    """One line of execution. Names are counted within it, so concurrent lines do not disturb each other's numbers."""

    def __init__(self, prefix: str = "", *, task: asyncio.Task[Any] | None = None, inside: str | None = None) -> None:
        self.prefix = prefix
        self.task = task
        """The task in which the line runs; names that other tasks count would depend on who is faster."""
        self.inside = inside
        """The step that is being run, if this stands for what runs inside of one."""
        self.waits = False
        """Whether the line is parked, or joins lines none of which has let it go on."""
        self.failures: list[tuple[Envelope, EffectError]] = []
        """Failures of steps that are not recorded yet: the line has not gone on from them."""
        self._counts: dict[str, int] = {}

    def name(self, name: str) -> str:
        """Return the name with its number within this line, from 1."""
        number = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self.prefix}{name}#{number}"


current_branch: Final[contextvars.ContextVar[Branch]] = contextvars.ContextVar("lash_branch")


def current_line() -> Branch:
    """Return the line that is asking, whichever of its tasks asks; raise ConfigError outside of a run or in a step."""
    try:
        branch = current_branch.get()
    except LookupError:
        raise ConfigError("a step, a sleep or a wait belongs inside the run whose turn or context it is") from None
    if branch.inside is not None:
        raise ConfigError(
            f"step {branch.inside!r} uses the context of its run; a step is recorded as a whole, so what it calls "
            "cannot be recorded too: call it behind the step instead"
        )
    return branch


def own_line() -> Branch:
    """Return the line that is asking, from its own task; raise ConfigError in tasks that the run does not know."""
    branch = current_line()
    if asyncio.current_task() is not branch.task:
        raise ConfigError(
            "steps and waits were called in a task of their own, where their order depends on who is faster: run "
            "concurrent lines with gather() of the context or turn, or give each step a key with options(key=...)"
        )
    return branch


class _Join:
    """A line that waits for others to end."""

    def __init__(self, parent: Branch, lines: int) -> None:
        self._parent = parent
        self._left = lines
        parent.waits = lines > 0

    def ended(self, *, failed: bool) -> None:
        """Note that a line ended. The last one lets the parent go on, and so does one that failed."""
        self._left -= 1
        if failed or self._left == 0:
            self._parent.waits = False


class Lines:
    """The lines of one run, and whether all of them wait for what only another run will see."""

    def __init__(self) -> None:
        self.active = 0
        """How many steps are being run right now."""
        self.on_quiet: Callable[[], None] | None = None
        """Called when every line waits and no step runs."""
        self._branches: set[Branch] = set()
        self._parked: set[asyncio.Future[NoReturn]] = set()

    def begin(self) -> None:
        """Begin a run in the task that calls: names are counted from 1 again."""
        self._branches = {root_branch()}

    async def park(self) -> NoReturn:
        """Wait until `suspend`; it never returns."""
        branch, parked = own_line(), asyncio.get_running_loop().create_future()
        self._parked.add(parked)
        branch.waits = True
        self.look()
        try:
            await parked
        finally:
            branch.waits = False
            self._parked.discard(parked)
        raise AssertionError("a parked line is suspended or cancelled")

    def suspend(self, reason: BaseException) -> None:
        """Let every line that is parked raise."""
        for parked in self._parked:
            if not parked.done():
                parked.set_exception(reason)

    def look(self) -> None:
        """Check whether every line waits."""
        quiet = self.active == 0 and all(branch.waits for branch in self._branches)
        if quiet and self._parked and self.on_quiet is not None:
            self.on_quiet()

    async def gather(self, group: str, awaitables: tuple[Awaitable[Any], ...]) -> list[Any]:
        """Run lines at once and return their results in order; the first error ends the others."""
        try:
            return await self._join(own_line(), group, awaitables)
        finally:
            # Close coroutines that never started, so that Python does not warn about them.
            for awaitable in awaitables:
                if inspect.iscoroutine(awaitable):
                    awaitable.close()

    async def _join(self, parent: Branch, group: str, awaitables: tuple[Awaitable[Any], ...]) -> list[Any]:
        lines = [Branch(f"{group}.{index}/") for index in range(len(awaitables))]
        self._branches.update(lines)
        join = _Join(parent, len(lines))
        tasks = [self._begin(join, line, awaitable) for line, awaitable in zip(lines, awaitables, strict=True)]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            parent.waits = not all(task.done() for task in tasks)
            try:
                await _ended(tasks)
            finally:
                parent.waits = False
                self._branches.difference_update(lines)
                # What the lines did not go on from is now for the parent to go on from.
                parent.failures.extend(failure for line in lines for failure in line.failures)

    def _begin(self, join: _Join, line: Branch, awaitable: Awaitable[Any]) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(current_branch.set, line)
        line.task = asyncio.create_task(self._line(join, line, awaitable), context=context)
        return line.task

    async def _line(self, join: _Join, line: Branch, awaitable: Awaitable[Any]) -> Any:  # noqa: ANN401 (its result)
        failed = True
        try:
            result = await awaitable
            failed = False
            return result
        finally:
            self._branches.discard(line)
            join.ended(failed=failed)
            self.look()


def root_branch() -> Branch:
    """Begin a new run in the task that calls: names are counted from 1 again."""
    branch = Branch(task=asyncio.current_task())
    current_branch.set(branch)
    return branch


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait until all tasks have ended, also while being cancelled, which is passed on afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled
