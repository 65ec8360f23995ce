"""Steps of one run: functions that run once, and the identities of what the runtime itself records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar, overload

from lash.base.limits import check_identifier
from lash.errors import InvalidInput
from lash.model.effect import Step
from lash.model.value import JSON
from lash.runtime.policy import STEP_RETRY, Retry
from lash.runtime.steps.journal import Journal, StepOptions
from lash.runtime.steps.values import describe

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN_BYTES: Final = 1_024


class Steps:
    """Runs steps of one run with the same options."""

    def __init__(self, journal: Journal, options: StepOptions) -> None:
        self._journal = journal
        self._options = options

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...

    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...

    def step(self, first: Any, /, *rest: Any, **kwargs: Any) -> Any:
        """Run a function once and record its result; after a crash the recorded result is returned.

        An async function runs in the event loop, a plain one in a thread.
        The name, by default the function's, and how often it came before make the key of the record, so give steps
        that differ different names. The arguments take part in the identity of the step: a run that comes by with
        others raises EffectMismatch. The result must be of the type that the function declares, or plain JSON.
        """
        name, function, args = _named((first, *rest))
        return self._journal.step(name, function, args, kwargs, self._options)

    def options(
        self,
        *,
        key: str | None = None,
        once: bool = False,
        retry: Retry = STEP_RETRY,
        timeout_s: float | None = None,
        limit: str | None = None,
        limit_key: str = "",
    ) -> Steps:
        """Return steps with options: an explicit key, at most once, with retries, with a time limit.

        ``limit`` names a limit that ``app.limit`` declares: each attempt starts when its rate permits, over all workers
        of the storage. Steps with different ``limit_key``, such as tenants, do not wait for each other.
        """
        options = StepOptions(key=key, once=once, retry=retry, timeout_s=timeout_s, limit=limit, limit_key=limit_key)
        return Steps(self._journal, options)

    @property
    def is_replaying(self) -> bool:
        """Whether earlier runs have recorded more than this one has come to: what it shows now was shown before."""
        return self._journal.is_replaying

    def key(self, name: str) -> str:
        """Return a key for steps in tasks of a framework: unique in this run, and the same in every later one."""
        check_identifier("name", name)
        return self._journal.name(name)

    def gather(self, *awaitables: Awaitable[Any]) -> Awaitable[list[Any]]:
        """Run several branches concurrently and return their results in order; the first error cancels the others.

        Steps are counted within their branch, so that their keys do not depend on timing. Give it steps,
        waits and calls of async functions that contain steps. Steps that are called by other means in tasks of their
        own raise ConfigError, unless they have keys of their own.

        With ``options(key=...)`` it can be called in tasks of other code too, such as a framework's: the branches in it
        may sleep and wait, and the run is parked while they do.
        """
        key = self._options.key
        return self._journal.lines.gather(self._journal.name("gather", key), awaitables, keyed=key is not None)


async def nothing() -> JSON:
    """Do nothing, once."""
    return None


def constant(value: JSON) -> Callable[[], Awaitable[JSON]]:
    """Return a body whose outcome is this value."""

    async def body() -> JSON:
        return value

    return body


def operation(name: str, /, *args: object, **kwargs: object) -> Step:
    """Return the identity of something that the runtime itself does for a function."""
    return Step(name=name, input=describe(args, kwargs, limit=_SHOWN_BYTES))


def milliseconds(seconds: float | None) -> int | None:
    """Return a time limit in milliseconds; raise InvalidInput if it is negative."""
    if seconds is not None and seconds < 0:
        raise InvalidInput(f"a time limit is not negative: {seconds} s")
    return None if seconds is None else round(seconds * 1_000)


def _named(given: tuple[Any, ...]) -> tuple[str, Callable[..., Any], tuple[Any, ...]]:
    """Return the name, the function and its arguments of a step's call."""
    if given and isinstance(given[0], str):
        name, *rest = given
        if not rest or not callable(rest[0]):
            raise InvalidInput(f"step {name!r} needs a function behind its name")
        return name, rest[0], tuple(rest[1:])
    if not given or not callable(given[0]):
        raise InvalidInput("a step needs a function, with a name before it or without")
    name = getattr(given[0], "__name__", "")
    if not name or name == "<lambda>":
        raise InvalidInput("a step of a function without a name needs one: step('name', function)")
    return name, given[0], tuple(given[1:])
