"""Agents and processes as the application declares them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, ParamSpec, TypeVar

from lash.base.limits import check_identifier
from lash.errors import ConfigError
from lash.model.process.event import SIGNAL_PREFIX, EventSemantics, EventType, Pointer, WakeSpec
from lash.model.value import JSONObject
from lash.runtime.policy import Retry
from lash.runtime.steps.run_limit import RunLimit
from lash.runtime.steps.values import UNTYPED, json_schema

P = ParamSpec("P")
R = TypeVar("R")

ENGINE: Final = "python"
WAKE: Final = "wake"
"""The event with which a durable function wakes the session it works for."""
DEFAULT_VERSION: Final = "1"


class AgentDefinition:
    """A function that answers a session's input, one turn at a time."""

    def __init__(
        self,
        function: Callable[..., Awaitable[object]],
        name: str,
        *,
        retry: Retry,
        timeout_s: float | None,
        limit: RunLimit | None = None,
    ) -> None:
        self.function = _checked(function, "an agent")
        self.name = check_identifier("the name of an agent", name)
        self.retry = retry
        self.timeout_s = timeout_s
        self.limit = limit

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    def __call__(self, turn: object, /) -> Awaitable[object]:
        """Call the function itself, for example in a unit test or from another agent's turn."""
        return self.function(turn)


class ProcessDefinition(Generic[P, R]):
    """A durable function: it is run again from its records until it ends, on any worker."""

    def __init__(
        self,
        function: Callable[..., Awaitable[R]],
        name: str,
        *,
        version: str,
        retry: Retry,
        timeout_s: float | None,
        signals: Mapping[str, object],
        limit: RunLimit | None = None,
    ) -> None:
        self.function = _checked_parameters(_checked(function, "a process"))
        self.name = check_identifier("the name of a process", name)
        self.version = check_identifier("the version of a process", version)
        self.retry = retry
        self.timeout_s = timeout_s
        self.signals = signals
        self.limit = limit

    def __repr__(self) -> str:
        return f"<process {self.name}, version {self.version}>"

    def __call__(self, context: object, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Call the function itself, for example in a unit test; nothing is registered."""
        return self.function(context, *args, **kwargs)

    def signal_type(self, name: str) -> object:
        """Return the declared type of a signal's payload, or UNTYPED."""
        shape = self.signals.get(name, UNTYPED)
        return UNTYPED if isinstance(shape, dict) else shape

    def event_types(self) -> tuple[EventType, ...]:
        """Return what its runs declare: wakes, the signals that are typed, and signals of any other name."""
        typed = (
            EventType(name=SIGNAL_PREFIX + name, payload_schema=_schema(name, shape))
            for name, shape in sorted(self.signals.items())
        )
        wake = EventType(name=WAKE, semantics=EventSemantics(wake=WakeSpec(input=Pointer(path="/text"))))
        return (wake, *typed, *(() if self.signals else (EventType(name=SIGNAL_PREFIX + "*"),)))


def is_redeclared(known: Callable[..., object], given: Callable[..., object]) -> bool:
    """Return whether a function is the same, or takes the place of another: a notebook cell was run again."""
    if known is given:
        return True
    place = (given.__module__, given.__qualname__) if inspect.isfunction(given) else None
    # Each call of an outer function makes another inner one, with other values in its closure.
    at_top = place is not None and "<locals>" not in place[1]
    return at_top and inspect.isfunction(known) and (known.__module__, known.__qualname__) == place


def agent_name(agent: object) -> str | None:
    """Return the name of an agent that was given as its definition or by its name."""
    if isinstance(agent, AgentDefinition):
        return agent.name
    return agent if isinstance(agent, str) else None


def _checked(function: Callable[..., Awaitable[Any]], what: str) -> Callable[..., Awaitable[Any]]:
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"expected an async function as {what}, got {function!r:.80}")
    if not inspect.signature(function).parameters:
        raise ConfigError(f"{what} takes a turn or a context as its first argument; {function.__qualname__} takes none")
    return function


def _checked_parameters(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return the function if each of its arguments can be stored under its name."""
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"a process stores its arguments by name; {function.__qualname__} takes {parameter}")
    return function


def _schema(name: str, shape: object) -> JSONObject:
    if isinstance(shape, dict):
        return shape
    try:
        return json_schema(shape)
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(f"signal {name!r}: its payload has no schema: {error}") from None
