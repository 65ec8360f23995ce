"""Tracks concurrent branches of a durable function, so that its steps have the same names in every run."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

from lash.errors import ConfigError
from lash.model.effect import EffectError, EffectRun, Envelope
from lash.model.value import JSON

T = TypeVar("T")

_BEFORE_WATCH_S: Final = 0.02
"""How long a branch waits before it watches for its end: most runs are parked by then."""
_BEFORE_STEP_S: Final = 0.05
"""How long a task of other code has to start its next step before the run is parked for the tasks that wait."""


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
        self.raced = False
        """Whether the branch, or one around it, competes with others, so that it looks for its end in memory too."""
        self.guests = 0
        """How many tasks of other code, which this branch awaits, run branches of their own under a key."""
        self.failures: list[tuple[Envelope, JSON | EffectError, EffectRun]] = []
        """Failures of steps, and winners of races that failed, not recorded: the branch has not continued since."""
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
    """A branch that waits for others to end: for all of them, or for the first in a race."""

    def __init__(self, parent: Branch, lines: int, *, raced: bool = False) -> None:
        self._parent = parent
        self._left = 1 if raced else lines
        parent.waits = lines > 0

    def ended(self, *, failed: bool) -> None:
        """Count a branch that ended. The last one, or a failed one, lets the parent continue."""
        self._left -= 1
        if failed or self._left <= 0:
            self._parent.waits = False


class Branches:
    """The branches of one run, and whether all of them wait, so that the run can be parked."""

    def __init__(self) -> None:
        self.active = 0
        """How many steps are running now."""
        self.on_quiet: Callable[[], None] | None = None
        """Called when every branch waits and no step runs."""
        self._branches: set[Branch] = set()
        self._parked: set[asyncio.Future[None]] = set()

    def begin(self, prefix: str) -> None:
        """Start a run in the calling task: names begin with the prefix, and are counted from 1 again."""
        self._branches = {root_branch(prefix)}

    @property
    def is_own(self) -> bool:
        """Whether the caller is a branch of this run, in its own task and not inside a step."""
        branch = current_branch.get(None)
        return branch is not None and branch in self._branches and branch.task is _current_task()

    async def park(self, left_s: float | None, watch: Callable[[], Awaitable[object]] | None) -> None:
        """Wait until `suspend`, or return after so many seconds, or in a race as soon as ``watch`` returns."""
        loop, branch = asyncio.get_running_loop(), own_branch()
        parked = loop.create_future()
        self._parked.add(parked)
        branch.waits = True
        self.check_quiet()

        def go_on() -> None:
            if not parked.done():
                branch.waits = False
                parked.set_result(None)

        timer = None if left_s is None else loop.call_later(left_s, go_on)
        watching = None
        if watch is not None and branch.raced and not parked.done():
            watching = asyncio.create_task(_watch(watch, go_on))
        try:
            await parked
        finally:
            branch.waits = False
            self._parked.discard(parked)
            if timer is not None:
                timer.cancel()
            if watching is not None:
                watching.cancel()

    def suspend(self, reason: BaseException) -> None:
        """Raise the reason in every parked branch."""
        for parked in self._parked:
            if not parked.done():
                parked.set_exception(reason)

    def check_quiet(self) -> None:
        """Check whether every branch waits."""
        quiet = self.active == 0 and all(branch.waits or branch.guests for branch in self._branches)
        if quiet and self._parked and self.on_quiet is not None:
            self.on_quiet()

    async def gather(self, group: str, awaitables: tuple[Awaitable[Any], ...], *, keyed: bool = False) -> list[Any]:
        """Run branches concurrently and return their results in order; the first error cancels the others.

        With ``keyed`` the name of the group does not depend on the order of calls, so any task of the run may call it.
        """
        lines = {Branch(f"{group}.{index}/"): awaitable for index, awaitable in enumerate(awaitables)}
        async with self._joined(lines, keyed=keyed) as tasks:
            return list(await asyncio.gather(*tasks))

    async def race(
        self, group: str, awaitables: tuple[Awaitable[Any], ...], won: Callable[[int, asyncio.Task[Any]], Awaitable[T]]
    ) -> T:
        """Run branches concurrently until the first ends; return what ``won`` does with it, and cancel the others."""
        lines = {Branch(f"{group}.{index}/"): awaitable for index, awaitable in enumerate(awaitables)}
        async with self._joined(lines, raced=True) as tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            index, line, task = next(
                each for each in zip(range(len(tasks)), lines, tasks, strict=True) if each[2].done()
            )
            # Failures after which the winner has not continued; a later run has no losers, so theirs do not count.
            own_branch().failures.extend(line.failures)
            return await won(index, task)

    async def again(self, group: str, index: int, awaitable: Awaitable[T]) -> T:
        """Run the branch that has won a race, in a later run."""
        async with self._joined({Branch(f"{group}.{index}/"): awaitable}) as (task,):
            result: T = await task
            return result

    @contextlib.asynccontextmanager
    async def _joined(
        self, lines: dict[Branch, Awaitable[Any]], *, raced: bool = False, keyed: bool = False
    ) -> AsyncIterator[list[asyncio.Task[Any]]]:
        """Run branches as tasks, and end all of them with the block."""
        try:
            with self._guest() if keyed else contextlib.nullcontext(own_branch()) as parent:
                async with self._tasks(parent, lines, raced=raced) as tasks:
                    yield tasks
        finally:
            # Close coroutines that never started, so that Python does not warn about them.
            for awaitable in lines.values():
                close(awaitable)

    @contextlib.contextmanager
    def _guest(self) -> Iterator[Branch]:
        """Treat the calling task as a branch, and the branch that it belongs to as waiting for it."""
        host = current_line()
        guest = Branch(task=_current_task())
        guest.raced = host.raced
        self._branches.add(guest)
        host.guests += 1
        try:
            yield guest
        finally:
            host.guests -= 1
            host.failures.extend(guest.failures)
            self._branches.discard(guest)
            if host.guests:
                # The other guests may be all that is left; what this task does next is not known here.
                asyncio.get_running_loop().call_later(_BEFORE_STEP_S, self.check_quiet)

    @contextlib.asynccontextmanager
    async def _tasks(
        self, parent: Branch, lines: dict[Branch, Awaitable[Any]], *, raced: bool
    ) -> AsyncIterator[list[asyncio.Task[Any]]]:
        self._branches.update(lines)
        join = _Join(parent, len(lines), raced=raced)
        for line in lines:
            line.raced = raced or parent.raced
        tasks = [self._begin(join, line, awaitable) for line, awaitable in lines.items()]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            parent.waits = not all(task.done() for task in tasks)
            try:
                await _ended(tasks)
            finally:
                parent.waits = False
                self._branches.difference_update(lines)
                if not raced:
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


class Closable(Awaitable[T]):
    """An awaitable with a coroutine of its own."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the coroutine: it is not to be awaited any more."""


def close(awaitable: Awaitable[Any]) -> None:
    """Close a coroutine that is not to be awaited any more, so that Python does not warn about it."""
    if inspect.iscoroutine(awaitable) or isinstance(awaitable, Closable):
        awaitable.close()


async def _watch(watch: Callable[[], Awaitable[object]], go_on: Callable[[], None]) -> None:
    """Let a branch look again when there is news for it; a run that is parked at once needs no watch."""
    await asyncio.sleep(_BEFORE_WATCH_S)
    with contextlib.suppress(Exception):
        # The branch reads again, and reports what is wrong.
        await watch()
    go_on()


def root_branch(prefix: str = "") -> Branch:
    """Start a new run in the calling task: names are counted from 1 again."""
    branch = Branch(prefix, task=asyncio.current_task())
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
