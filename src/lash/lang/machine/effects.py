"""What a machine asks its host to do, and how its program ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lash.lang.syntax.span import Span
from lash.lang.values.convert import to_json
from lash.lang.values.fault import Fault
from lash.lang.values.value import Record, Resource, Value
from lash.model.value import JSONObject


@dataclass(frozen=True, slots=True)
class Site:
    """Where an effect is in the program, and how often it was reached: the same in every run."""

    node_id: str
    occurrence: int

    @property
    def key(self) -> str:
        """The text under which the effect is recorded."""
        return f"{self.node_id}:{self.occurrence}"


@dataclass(frozen=True, slots=True)
class Operation:
    """Call an operation of a module of the host. The answer is a result: ``{ok, value}`` or ``{ok, error}``."""

    site: Site
    receiver: Resource
    name: str
    arguments: tuple[Value, ...]

    @property
    def payload(self) -> JSONObject:
        """What the tool gets: the fields of the only record, or all arguments in a list."""
        if len(self.arguments) == 1 and isinstance(self.arguments[0], Record):
            return {name: to_json(each) for name, each in self.arguments[0].fields.items()}
        return {"args": [to_json(each) for each in self.arguments]} if self.arguments else {}


@dataclass(frozen=True, slots=True)
class Batch:
    """Call several operations side by side. The answers are in the order of the source."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Start a process of the module; the answer is its handle."""

    site: Site
    process: str
    arguments: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class AwaitProcess:
    """Wait for the end of a process; the answer is a result."""

    site: Site
    process_id: str


@dataclass(frozen=True, slots=True)
class CancelProcess:
    """Ask a process to stop; the answer is whether it was still running."""

    site: Site
    process_id: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Pause for a duration, or until a moment."""

    site: Site
    how: Literal["for", "until"]
    value: Value


@dataclass(frozen=True, slots=True)
class WaitSignal:
    """Wait for the next signal of a name; the answer is its payload."""

    site: Site
    name: str


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal to a process."""

    site: Site
    process_id: str
    name: str
    payload: Value


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """Add an event to the log of the process; a wake also reaches the session that it works for."""

    site: Site
    kind: Literal["yield", "wake"]
    value: Value


@dataclass(frozen=True, slots=True)
class Print:
    """Show a value to the author of a cell."""

    site: Site
    value: Value


Effect: TypeAlias = (
    Operation
    | Batch
    | StartProcess
    | AwaitProcess
    | CancelProcess
    | Sleep
    | WaitSignal
    | SendSignal
    | ProcessEvent
    | Print
)


@dataclass(frozen=True, slots=True)
class OutOfSteps:
    """The steps that the host gave are used up; the program continues with the next ones."""


@dataclass(frozen=True, slots=True)
class Done:
    """The program has ended: by a statement with a value, or at its end."""

    how: Literal["finish", "submit", "end"]
    value: Value


@dataclass(frozen=True, slots=True)
class Failed:
    """The program has failed by its own statement."""

    value: Value


@dataclass(frozen=True, slots=True)
class Broken:
    """The program did what the language, a limit or its host does not allow."""

    fault: Fault
    span: Span | None
    path: str = ""
    """The path of the node; programs from a storage have no spans."""


Pause: TypeAlias = Effect | OutOfSteps | Done | Failed | Broken
"""Why a machine returned to its host."""
