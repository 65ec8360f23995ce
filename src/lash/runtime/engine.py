"""Engines run the programs of processes. The runtime knows an engine only by these two classes."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from lash.base.limits import check_identifier
from lash.errors import ConfigError, InvalidInput, UnknownDefinition
from lash.model.process.event import SIGNAL_PREFIX, EventSemantics, EventType, Pointer, WakeSpec
from lash.model.process.process import EngineInput, ProcessIdentity
from lash.model.value import JSON
from lash.runtime.policy import PROCESS_RETRY, Retry
from lash.runtime.steps.run_limit import RunLimit
from lash.runtime.steps.values import UNTYPED

if TYPE_CHECKING:
    from lash.runtime.processes.context import Context
    from lash.runtime.turns.cell import CellResult
    from lash.runtime.turns.turn import Turn
    from lash.stores.storage import Storage

P = ParamSpec("P")
R = TypeVar("R")

WAKE: Final = "wake"
"""The event with which a process wakes the session it works for."""
WAKE_EVENT: Final = EventType(name=WAKE, semantics=EventSemantics(wake=WakeSpec(input=Pointer(path="/text"))))
ANY_SIGNAL: Final = EventType(name=SIGNAL_PREFIX + "*")


class Program(abc.ABC, Generic[P, R]):
    """What a process runs: a durable function, or source that an engine interprets.

    ``app.start``, ``ctx.start``, ``turn.start``, ``app.on`` and ``app.cron`` take any program. Its name is the label of
    its processes: lists show it, and workers choose their work by it.
    """

    def __init__(
        self,
        engine: str,
        name: str,
        version: str,
        *,
        retry: Retry = PROCESS_RETRY,
        timeout_s: float | None = None,
        limit: RunLimit | None = None,
    ) -> None:
        self.engine = check_identifier("the name of an engine", engine)
        self.name = check_identifier("the name of a process", name)
        self.version = check_identifier("the version of a process", version)
        self.retry = retry
        self.timeout_s = timeout_s
        self.limit = limit

    def __repr__(self) -> str:
        return f"<process {self.name}, version {self.version}>"

    @property
    def result_type(self) -> object:
        """The declared type of the result, or UNTYPED for plain JSON."""
        return UNTYPED

    @property
    @abc.abstractmethod
    def parameters(self) -> Mapping[str, bool]:
        """The arguments by name, each with whether it must be given."""

    @abc.abstractmethod
    async def check_start(
        self, storage: Storage, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> dict[str, JSON]:
        """Return the arguments of a start by name, or raise InvalidInput before anything is registered.

        A program that its processes find in the storage is stored here, so it must be idempotent.
        """

    @abc.abstractmethod
    async def run(self, context: Context, arguments: Mapping[str, Any]) -> R:
        """Run from the beginning; everything that must happen once goes through the context.

        What it returns is the result of the process. `ProgramFailed` ends the process with a code of its own; any other
        error is an attempt that failed.
        """

    def reference(self) -> dict[str, JSON]:
        """Return what names the program in the input of its processes, beside their arguments."""
        return {"process": self.name, "version": self.version}

    def argument(self, name: str, value: object) -> JSON:
        """Return one fixed argument of a subscription as JSON, or raise InvalidInput."""
        del name
        if not isinstance(value, None | bool | int | float | str | list | dict):
            raise InvalidInput(f"process {self.name!r}: expected plain JSON, got {type(value).__name__}")
        return value

    def signal_type(self, name: str) -> object:
        """Return the declared type of a signal's payload, or UNTYPED."""
        del name
        return UNTYPED

    def event_types(self) -> tuple[EventType, ...]:
        """Return the types of events that its processes declare: by default wakes, and signals of any name."""
        return (WAKE_EVENT, ANY_SIGNAL)

    def is_redeclared_by(self, other: Program[Any, Any]) -> bool:
        """Return whether a program takes the place of this one, as in a notebook cell that is run again."""
        return self is other

    def is_programming_error(self, error: BaseException) -> bool:
        """Return whether the same program raises this error again, however often it is tried."""
        del error
        return False

    def input(self, arguments: Mapping[str, JSON]) -> EngineInput:
        """Return the input of a process with these arguments."""
        return EngineInput(kind=self.engine, payload={**self.reference(), "args": dict(arguments)})

    def identity(self) -> ProcessIdentity:
        """Return what lists of processes show and filter by."""
        return ProcessIdentity(kind=self.engine, label=self.name, definition=self.reference())

    @property
    def environment_ref(self) -> str:
        """The program that a process was started with, in one line."""
        return f"{self.engine}:{self.name}@{self.version}"


class Loaded(NamedTuple):
    """A program, and the arguments with which one run of a process runs it."""

    program: Program[Any, Any]
    arguments: Mapping[str, Any]


class Host(Protocol):
    """What an engine finds in the application that runs it."""

    @property
    def storage(self) -> Storage: ...

    def process(self, name: str, version: str) -> Program[Any, Any]:
        """Return the program that is declared under a name and a version; raise UnknownDefinition."""
        ...

    def latest(self, name: str) -> Program[Any, Any]:
        """Return the program of a name that was declared last; raise UnknownDefinition."""
        ...


class Engine(abc.ABC):
    """Loads and runs the programs of one kind; ``app.engine(engine)`` adds it to an application.

    The input of a process names its engine. A worker without this engine leaves the process to other workers.
    """

    name: str
    version: str
    """The version of what interprets the programs; an engine may record it in its runs."""

    @abc.abstractmethod
    async def load(self, payload: Mapping[str, JSON], host: Host) -> Loaded:
        """Return the program and the arguments of one run; called at the begin of every run, and idempotent.

        ``payload`` is that of the process's input or, after a continuation, of the last one. Raises UnknownDefinition
        if another worker may have the program: the process is left to it. Raises InvalidInput, or InvalidProgram with a
        code of its own, if no worker can ever run it: the process ends as failed.
        """

    def check_known(self, program: Program[Any, Any], host: Host) -> None:  # noqa: B027 (most programs need no declaration)
        """Raise UnknownDefinition if this application does not declare a program that it is about to start."""

    async def continuation(
        self, program: Program[Any, Any], args: tuple[object, ...], kwargs: Mapping[str, object], host: Host
    ) -> JSON:
        """Return the payload of the next run of a process, for ``ctx.continue_as_new``."""
        return program.input(await program.check_start(host.storage, args, kwargs)).payload

    async def run_cell(self, turn: Turn, source: str, host: Host) -> CellResult:
        """Run a piece of a program in a turn, for ``turn.run_cell``; raise ConfigError if the engine has no cells."""
        del turn, source, host
        raise ConfigError(f"engine {self.name!r} runs processes only, not cells of a turn")

    async def close(self) -> None:  # noqa: B027 (most engines hold nothing)
        """Free what runs have used; called after the last run when the application stops. It may be used again."""


class DeclaredEngine(Engine):
    """Runs programs that the application declares by name and version, such as durable functions."""

    def __init__(self, name: str, version: str = "1") -> None:
        self.name = check_identifier("the name of an engine", name)
        self.version = version

    async def load(self, payload: Mapping[str, JSON], host: Host) -> Loaded:
        program = host.process(str(payload.get("process")), str(payload.get("version")))
        if program.engine != self.name:
            # Another worker may still have the code with which the process was started.
            wanted = f"{program.name} version {program.version} on engine {self.name}"
            raise UnknownDefinition("process", wanted, f"{program.name} on engine {program.engine}")
        stored = payload.get("args") or {}
        if not isinstance(stored, dict):
            raise InvalidInput(f"process {program.name!r} was registered with arguments that have no names")
        return Loaded(program, self.read_arguments(program, stored))

    def read_arguments(self, program: Program[Any, Any], stored: Mapping[str, JSON]) -> Mapping[str, Any]:
        """Return stored arguments as the program takes them, or raise InvalidInput."""
        unknown = sorted(set(stored) - set(program.parameters))
        if unknown:
            raise InvalidInput(f"process {program.name!r} takes no argument {unknown[0]!r}")
        return stored

    def check_known(self, program: Program[Any, Any], host: Host) -> None:
        host.process(program.name, program.version)

    async def continuation(
        self, program: Program[Any, Any], args: tuple[object, ...], kwargs: Mapping[str, object], host: Host
    ) -> JSON:
        """Return the payload of the next run, which runs the version that was declared last."""
        return await super().continuation(host.latest(program.name), args, kwargs, host)
