"""What an application declares: agents, processes, and what starts processes; in one place or in several routers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar, overload

from lash.base.limits import check_identifier
from lash.errors import ConfigError
from lash.model.limit import Limit
from lash.plan.limit import make_limit
from lash.runtime.core import Definitions
from lash.runtime.definition import (
    DEFAULT_VERSION,
    AgentDefinition,
    ProcessDefinition,
    is_redeclared,
)
from lash.runtime.engine import Engine, Program
from lash.runtime.policy import PROCESS_RETRY, TURN_RETRY, Retry
from lash.runtime.processes.context import Context
from lash.runtime.steps.run_limit import LimitKey, run_limit
from lash.runtime.trigger import DeclaredTrigger, DeclaredTriggers, cron_trigger, event_trigger
from lash.runtime.turns.turn import Turn

if TYPE_CHECKING:
    from lash.code.engine import CodeProcess
    from lash.code.limits import CodeLimits

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Callable[[Turn], Awaitable[object]])


class Declared(NamedTuple):
    """Agents, processes, and what starts processes."""

    agents: tuple[AgentDefinition, ...]
    processes: tuple[Program[Any, Any], ...]
    triggers: tuple[DeclaredTrigger, ...]
    limits: tuple[tuple[str, Limit], ...]
    engines: tuple[Engine, ...] = ()


class Declarations:
    """Agents, processes, subscriptions and schedules, by name."""

    def __init__(self) -> None:
        self._definitions = Definitions()
        self._triggers = DeclaredTriggers()

    @overload
    def agent(self, function: A, /) -> AgentDefinition: ...

    @overload
    def agent(
        self,
        /,
        *,
        name: str | None = None,
        retry: Retry = TURN_RETRY,
        timeout_s: float | None = None,
        limit: str | None = None,
        limit_key: str | Callable[[Turn], str | Awaitable[str]] = "",
    ) -> Callable[[A], AgentDefinition]: ...

    def agent(
        self,
        function: Callable[[Turn], Awaitable[object]] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry = TURN_RETRY,
        timeout_s: float | None = None,
        limit: str | None = None,
        limit_key: LimitKey = "",
    ) -> Any:
        """Declare the function that answers sessions; it takes a turn and returns the reply.

        A function of the same module and name takes the place of the earlier one, as in a notebook cell that is run
        again. ``limit`` names a limit for whole turns. ``limit_key`` is its key, or a function of the turn that returns
        it, for instance the tenant of the session.
        """
        limited = run_limit(limit, limit_key)

        def declare(given: Callable[[Turn], Awaitable[object]]) -> AgentDefinition:
            definition = AgentDefinition(given, name or _name(given), retry=retry, timeout_s=timeout_s, limit=limited)
            self._add_agent(definition)
            return definition

        return declare if function is None else declare(function)

    @overload
    def process(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> ProcessDefinition[P, R]: ...

    @overload
    def process(
        self,
        /,
        *,
        name: str | None = None,
        version: str = DEFAULT_VERSION,
        retry: Retry = PROCESS_RETRY,
        timeout_s: float | None = None,
        signals: Mapping[str, object] | None = None,
        limit: str | None = None,
        limit_key: str | Callable[..., str | Awaitable[str]] = "",
    ) -> Callable[[Callable[Concatenate[Context, P], Awaitable[R]]], ProcessDefinition[P, R]]: ...

    def process(
        self,
        function: Callable[..., Awaitable[Any]] | None = None,
        /,
        *,
        name: str | None = None,
        version: str = DEFAULT_VERSION,
        retry: Retry = PROCESS_RETRY,
        timeout_s: float | None = None,
        signals: Mapping[str, object] | None = None,
        limit: str | None = None,
        limit_key: LimitKey = "",
    ) -> Any:
        """Declare a durable function; it takes a context and arguments that JSON can carry.

        Runs that began under one ``version`` go on with the code that is declared under it; new ones take the version
        of the definition that they are started with. ``signals`` names the signals it takes, each with the type of its
        payload; without it every signal is taken. ``limit`` names a limit for whole processes. ``limit_key`` is its
        key, or a function of the same arguments that returns it.
        """
        limited = run_limit(limit, limit_key)

        def declare(given: Callable[..., Awaitable[Any]]) -> ProcessDefinition[Any, Any]:
            definition: ProcessDefinition[Any, Any] = ProcessDefinition(
                given,
                name or _name(given),
                version=version,
                retry=retry,
                timeout_s=timeout_s,
                signals=signals or {},
                limit=limited,
            )
            self._add_process(definition)
            return definition

        return declare if function is None else declare(function)

    def on(
        self,
        source_type: str,
        process: Program[Any, Any],
        *,
        key: str | None = None,
        source_key: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        wake: str | None = None,
    ) -> None:
        """Start a process each time something is emitted under this name.

        ``inputs`` says where its arguments come from: ``lash.EVENT`` for the whole payload, ``lash.pointer("/path")``
        for a part of it, anything else as it is. Without it a process of one argument gets the payload. ``schema`` is
        what a payload must look like; ``wake`` is the session that the processes wake.
        """
        self._declare(event_trigger(source_type, process, key, source_key, inputs, schema, wake))

    def cron(
        self,
        line: str,
        process: Program[Any, Any],
        *,
        key: str | None = None,
        time_zone: str = "UTC",
        inputs: Mapping[str, Any] | None = None,
        catch_up: str = "last",
        jitter_s: float = 0,
        wake: str | None = None,
    ) -> None:
        """Start a process by the clock: ``app.cron("0 7 * * 1-5", digest, time_zone="Europe/Berlin")``.

        The key, by default made of the process's name, says which schedule this is: another line under the same key
        takes the place of the one that an earlier version of the code declared.
        Each tick starts it once, however many workers run. ``catch_up`` decides about ticks that were missed while no
        worker ran: ``skip``, ``last`` or ``all``.
        """
        self._declare(cron_trigger(line, process, key, time_zone, inputs, catch_up, jitter_s, wake))

    def limit(self, name: str, *, rate: str | None = None, burst: int = 1, concurrency: int | None = None) -> None:
        """Declare a limit over all workers: ``app.limit("openai", rate="60/minute", concurrency=4)``.

        Steps name it: ``turn.options(limit="openai").step(...)``. With a ``rate``, starts are evenly spaced; after a
        pause up to ``burst`` of them may come at once. With a ``concurrency``, at most so many run at the same time.
        Declaring a name again changes it.
        """
        self._definitions.limits[check_identifier("the name of a limit", name)] = make_limit(rate, burst, concurrency)

    def engine(self, engine: Engine) -> None:
        """Add an engine: a worker of this app runs the processes whose input names it.

        Another engine of the same name raises ConfigError.
        """
        name = check_identifier("the name of an engine", engine.name)
        known = self._definitions.engines.get(name)
        if known is not None and known is not engine:
            raise ConfigError(f"there is an engine {name!r} already; rename one of them")
        self._definitions.engines[name] = engine

    def declare(self, program: Program[P, R]) -> Program[P, R]:
        """Declare a program that an engine of this app runs, by its name and version, and return it."""
        self._definitions.engine(program.engine)
        self._add_process(program)
        return program

    def code_process(
        self,
        name: str = "program",
        *,
        tools: Sequence[Callable[..., Any]] = (),
        limits: CodeLimits | None = None,
        version: str = DEFAULT_VERSION,
        retry: Retry = PROCESS_RETRY,
        timeout_s: float | None = None,
    ) -> CodeProcess:
        """Declare processes that run sandboxed Python: ``await app.start(program, source)``.

        A program may call the ``tools``, functions or `lash.agents.tool`, and nothing else outside of its sandbox. Each
        call is a step; ``sleep`` and ``ask_human`` park the process. It needs the extra ``code``.
        """
        from lash.code.engine import CodeEngine, CodeProcess, shared_engine

        engine = self._definitions.engines.get("code") or shared_engine()
        if not isinstance(engine, CodeEngine):
            raise ConfigError(f"engine 'code' of this app is {engine!r:.80}, which does not run sandboxed Python")
        program = CodeProcess(engine, name, version, tools=tools, limits=limits, retry=retry, timeout_s=timeout_s)
        self.engine(engine)
        self._add_process(program)
        return program

    def include(self, router: Router) -> None:
        """Add everything that a router has declared by now; including it again adds what it declared since."""
        for agent in router.declared.agents:
            self._add_agent(agent)
        for engine in router.declared.engines:
            self._definitions.engines.setdefault(engine.name, engine)
        for process in router.declared.processes:
            self._add_process(process)
        for trigger in router.declared.triggers:
            self._declare(trigger)
        self._definitions.limits |= dict(router.declared.limits)

    def find_process(self, name: str) -> Program[Any, Any]:
        """Return the declared process of a name; of several versions the one that was declared last."""
        return self._definitions.latest(name)

    def find_engine(self, name: str) -> Engine:
        """Return the engine of a name; raise UnknownDefinition if this app has none."""
        return self._definitions.engine(name)

    def _declare(self, declared: DeclaredTrigger) -> None:
        self._triggers.add(declared)

    def _add_agent(self, definition: AgentDefinition) -> None:
        known = self._definitions.agents.get(definition.name)
        if known is not None and not is_redeclared(known.function, definition.function):
            raise ConfigError(f"agent {definition.name!r} is declared twice; rename one of them")
        self._definitions.agents[definition.name] = definition

    def _add_process(self, definition: Program[Any, Any]) -> None:
        key = (definition.name, definition.version)
        known = self._definitions.processes.get(key)
        if known is not None and not known.is_redeclared_by(definition):
            raise ConfigError(
                f"there is a process {definition.name!r} of version {definition.version!r} already; give one of "
                "them another name or version"
            )
        self._definitions.processes[key] = definition


class Router(Declarations):
    """Declarations of one module, without an application: ``app.include(router)`` adds them to one.

    So a module can declare agents and processes without importing the application, which imports the module instead.
    A router can include others.
    """

    @property
    def declared(self) -> Declared:
        """What the router has declared by now."""
        definitions = self._definitions
        return Declared(
            tuple(definitions.agents.values()),
            tuple(definitions.processes.values()),
            tuple(self._triggers),
            tuple(definitions.limits.items()),
            tuple(definitions.engines.values()),
        )


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", type(function).__name__)
