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
    """One branch. Names are counted within it, so that concurrent branches do not affect each other's numbers."""

    def __init__(self, prefix: str = "", *, task: asyncio.Task[Any] | None = None, inside: str | None = None) -> None:
        self.prefix = prefix
        self.task = task
        """The task of the branch; the numbers of names used in other tasks would depend on timing."""
        self.inside = inside
        """The running step, if this branch is the code inside one."""
        self.waits = False
        """Whether the branch is parked, or waits for branches of which none has ended."""
        self.failures: list[tuple[Envelope, EffectError]] = []
        """Failures of steps that are not recorded: the branch has not continued after them."""
        self._counts: dict[str, int] = {}

    def name(self, name: str) -> str:
        """Return the name with its number within this branch, from 1."""
        number = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self.prefix}{name}#{number}"


current_branch: Final[contextvars.ContextVar[Branch]] = contextvars.ContextVar("lash_branch")


def current_line() -> Branch:
    """Return the current branch, from any of its tasks; raise ConfigError outside of a run or in a step."""
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


def own_branch() -> Branch:
    """Return the current branch, from its own task; raise ConfigError in tasks and threads of other code."""
    branch = current_line()
    if _current_task() is not branch.task:
        raise ConfigError(
            "steps and waits were called in a task or thread of their own, where their order depends on timing: give "
            "each step a key with options(key=...) of the turn or context, or run concurrent branches with its gather()"
        )
    return branch


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # A plain thread.
        return None


class _Join:
    """A branch that waits for others to end."""

    def __init__(self, parent: Branch, lines: int) -> None:
        self._parent = parent
        self._left = lines
        parent.waits = lines > 0

    def ended(self, *, failed: bool) -> None:
        """Count a branch that ended. The last one, or a failed one, lets the parent continue."""
        self._left -= 1
        if failed or self._left == 0:
            self._parent.waits = False


class Branches:
    """The branches of one run, and whether all of them wait, so that the run can be parked."""

    def __init__(self) -> None:
        self.active = 0
        """How many steps are running now."""
        self.on_quiet: Callable[[], None] | None = None
        """Called when every branch waits and no step runs."""
        self._branches: set[Branch] = set()
        self._parked: set[asyncio.Future[NoReturn]] = set()

    def begin(self) -> None:
        """Start a run in the calling task: names are counted from 1 again."""
        self._branches = {root_branch()}

    @property
    def is_own(self) -> bool:
        """Whether the caller is a branch of this run, in its own task and not inside a step."""
        branch = current_branch.get(None)
        return branch is not None and branch in self._branches and branch.task is _current_task()

    async def park(self) -> NoReturn:
        """Wait until `suspend`; it never returns."""
        branch, parked = own_branch(), asyncio.get_running_loop().create_future()
        self._parked.add(parked)
        branch.waits = True
        self.check_quiet()
        try:
            await parked
        finally:
            branch.waits = False
            self._parked.discard(parked)
        raise AssertionError("a parked branch is suspended or cancelled")

    def suspend(self, reason: BaseException) -> None:
        """Raise the reason in every parked branch."""
        for parked in self._parked:
            if not parked.done():
                parked.set_exception(reason)

    def check_quiet(self) -> None:
        """Check whether every branch waits."""
        quiet = self.active == 0 and all(branch.waits for branch in self._branches)
        if quiet and self._parked and self.on_quiet is not None:
            self.on_quiet()

    async def gather(self, group: str, awaitables: tuple[Awaitable[Any], ...]) -> list[Any]:
        """Run branches concurrently and return their results in order; the first error cancels the others."""
        try:
            return await self._join(own_branch(), group, awaitables)
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
                # Failures after which no branch continued now belong to the parent.
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
            self.check_quiet()


def root_branch() -> Branch:
    """Start a new run in the calling task: names are counted from 1 again."""
    branch = Branch(task=asyncio.current_task())
    current_branch.set(branch)
    return branch


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait until all tasks have ended; a cancellation meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as again:
            cancelled = again
    if cancelled is not None:
        raise cancelled
