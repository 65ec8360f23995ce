"""Agents and processes as the application declares them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from lash.base.limits import check_identifier
from lash.errors import ConfigError, InvalidInput
from lash.model.process.event import SIGNAL_PREFIX, EventType
from lash.model.value import JSON, JSONObject
from lash.runtime.engine import ANY_SIGNAL, WAKE_EVENT, DeclaredEngine, Program
from lash.runtime.policy import Retry
from lash.runtime.steps.failure import is_programming_error
from lash.runtime.steps.run_limit import RunLimit
from lash.runtime.steps.values import (
    UNTYPED,
    bind_arguments,
    json_schema,
    parameter_types,
    read_arguments,
    result_type,
    to_json,
)

if TYPE_CHECKING:
    from lash.stores.storage import Storage

P = ParamSpec("P")
R = TypeVar("R")

ENGINE: Final = "python"
"""The engine of durable functions."""
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


class ProcessDefinition(Program[P, R]):
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
        super().__init__(ENGINE, name, version, retry=retry, timeout_s=timeout_s, limit=limit)
        self.function = _checked_parameters(_checked(function, "a process"))
        self.signals = signals

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
        return (WAKE_EVENT, *typed, *(() if self.signals else (ANY_SIGNAL,)))

    @property
    def result_type(self) -> object:
        return result_type(self.function)

    @property
    def parameters(self) -> dict[str, bool]:
        taken = list(inspect.signature(self.function).parameters.values())[1:]
        return {each.name: each.default is each.empty for each in taken}

    async def check_start(
        self, storage: Storage, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, JSON]:
        del storage
        return bind_arguments(self.function, f"process {self.name!r}", args, kwargs)

    def argument(self, name: str, value: object) -> JSON:
        declared = parameter_types(self.function, skip=1)[name]
        return to_json(value, declared, f"process {self.name!r}: input {name!r}")

    async def run(self, context: object, arguments: Mapping[str, Any]) -> R:
        result: R = await self.function(context, **arguments)
        return result

    def is_redeclared_by(self, other: Program[Any, Any]) -> bool:
        return isinstance(other, ProcessDefinition) and is_redeclared(self.function, other.function)

    def is_programming_error(self, error: BaseException) -> bool:
        return is_programming_error(error, self.function)


class FunctionEngine(DeclaredEngine):
    """Runs durable functions, which an application declares with ``@app.process``."""

    def __init__(self) -> None:
        super().__init__(ENGINE)

    def read_arguments(self, program: Program[Any, Any], stored: Mapping[str, JSON]) -> Mapping[str, Any]:
        if not isinstance(program, ProcessDefinition):
            raise InvalidInput(f"expected a durable function as process {program.name!r}, got {program!r}")
        return read_arguments(program.function, f"process {program.name!r}", stored)


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
