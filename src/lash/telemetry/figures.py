"""The metrics of lash, and how they follow from the calls of hooks; OpenTelemetry and Prometheus get the same ones."""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from lash.runtime.hooks import PROCESS, STEP, TURN, Attributes

Labels: TypeAlias = Mapping[str, str]

SECONDS: Final = "s"
_FAST: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
_TOKENS: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0)
"""The bounds that OpenTelemetry's conventions give for tokens, up to a million."""


class FigureKind(enum.Enum):
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Figure(NamedTuple):
    """One metric: its name, what it counts in which unit, and the upper bounds of a histogram."""

    name: str
    kind: FigureKind
    unit: str
    description: str
    bounds: tuple[float, ...] = ()


def _histogram(name: str, description: str) -> Figure:
    return Figure(name, FigureKind.HISTOGRAM, SECONDS, description, _FAST)


def _counter(name: str, unit: str, description: str) -> Figure:
    return Figure(name, FigureKind.COUNTER, unit, description)


def _gauge(name: str, unit: str, description: str) -> Figure:
    return Figure(name, FigureKind.GAUGE, unit, description)


TURN_DURATION: Final = _histogram("lash.turn.duration", "the last run of each turn that ended, by agent and outcome")
PROCESS_DURATION: Final = _histogram("lash.process.duration", "processes from start to end, by process and outcome")
STEP_DURATION: Final = _histogram("lash.step.duration", "attempts of steps, by kind: tool, model or step")
COMMIT_DURATION: Final = _histogram("lash.commit.duration", "commits of turns")
QUEUE_WAIT: Final = _histogram("lash.queue.wait", "from the arrival of a message to the claim of its turn, by agent")
TOKEN_USAGE: Final = Figure(
    "gen_ai.client.token.usage", FigureKind.HISTOGRAM, "{token}", "tokens of turns, by type and model", _TOKENS
)
REPLAYED: Final = _counter("lash.steps.replayed", "{step}", "steps answered from their record")
RETRIES: Final = _counter("lash.retries", "{attempt}", "attempts after which another one followed, by kind")
BURIED: Final = _counter("lash.turns.buried", "{turn}", "turns that became dead letters, by agent")
FAILED: Final = _counter("lash.processes.failed", "{process}", "processes that failed, by process")
LEASES_LOST: Final = _counter("lash.leases.lost", "{lease}", "runs that stopped because their lease was lost")
STATEMENTS: Final = _counter("lash.statements", "{statement}", "statements sent to the database, by statement")

GAUGES: Final = {
    "loop.lag": _gauge("lash.loop.lag", SECONDS, "how late the event loop is"),
    "slots.used": _gauge("lash.slots.used", "{run}", "slots of this worker with a run, by kind"),
    "slots.free": _gauge("lash.slots.free", "{run}", "slots of this worker without a run, by kind"),
    "queue.depth": _gauge("lash.queue.depth", "{message}", "messages in the queues, by state"),
    "queue.oldest_age": _gauge("lash.queue.oldest_age", SECONDS, "how long the oldest ready message has been ready"),
    "dead_letters": _gauge("lash.dead_letters", "{message}", "dead letters"),
    "processes": _gauge("lash.processes", "{process}", "processes that were not pruned, by status"),
    "waits.open": _gauge("lash.waits.open", "{wait}", "open waits"),
    "workers.live": _gauge("lash.workers.live", "{worker}", "workers that beat in time"),
    "storage.bytes": _gauge("lash.storage.bytes", "By", "the size of the storage"),
}
"""By the name under which a hook gets them."""
FIGURES: Final = (
    TURN_DURATION,
    PROCESS_DURATION,
    STEP_DURATION,
    COMMIT_DURATION,
    QUEUE_WAIT,
    TOKEN_USAGE,
    REPLAYED,
    RETRIES,
    BURIED,
    FAILED,
    LEASES_LOST,
    STATEMENTS,
    *GAUGES.values(),
)
"""All of them, in the order in which they are listed."""
_TOKEN_TYPES: Final = {"input_tokens": "input", "output_tokens": "output"}


class FigureSink(Protocol):
    """Where figures go. Labels are few, and each has few values."""

    def add(self, figure: Figure, labels: Labels) -> None:
        """Count one."""

    def observe(self, figure: Figure, value: float, labels: Labels) -> None:
        """Add a value to a histogram."""

    def set(self, figure: Figure, value: float, labels: Labels) -> None:
        """Set a gauge."""


class FigureHook:
    """Turns the calls of a hook into figures; a hook has one and passes its calls on."""

    def __init__(self, sink: FigureSink) -> None:
        self._sink = sink

    @contextlib.contextmanager
    def timing(self, kind: str, attributes: Attributes) -> Iterator[None]:
        """Surround one attempt of a turn, a process or a step."""
        if kind == TURN and attributes["attempt"] == 1:
            self._sink.observe(QUEUE_WAIT, float(attributes["waited_s"]), {"agent": str(attributes["agent"])})
        if kind != STEP:
            yield
            return
        if attributes["attempt"] != 1:
            self._sink.add(RETRIES, {"kind": STEP})
        began = time.monotonic()
        try:
            yield
        finally:
            self._sink.observe(STEP_DURATION, time.monotonic() - began, {"kind": step_kind(attributes)})

    def note(self, kind: str, attributes: Attributes) -> None:
        """Count a single event."""
        match kind:
            case "step.replayed":
                self._sink.add(REPLAYED, {})
            case "turn.retried":
                self._sink.add(RETRIES, {"kind": TURN})
            case "process.retried":
                self._sink.add(RETRIES, {"kind": PROCESS})
            case "turn.buried":
                self._sink.add(BURIED, _only(attributes, "agent"))
            case "process.failed":
                self._sink.add(FAILED, _only(attributes, "process"))
            case "lease.lost":
                self._sink.add(LEASES_LOST, {})
            case "turn.ended":
                self._sink.observe(TURN_DURATION, float(attributes["took_s"]), _only(attributes, "agent", "outcome"))
            case "process.ended":
                labels = _only(attributes, "process", "outcome")
                self._sink.observe(PROCESS_DURATION, float(attributes["took_s"]), labels)
            case "turn.committed":
                self._committed(attributes)

    def measure(self, name: str, value: float, attributes: Attributes) -> None:
        """Set a gauge; figures of later versions are left out."""
        if (gauge := GAUGES.get(name)) is not None:
            self._sink.set(gauge, value, {key: str(each) for key, each in attributes.items()})

    def statement(self, name: str) -> None:
        self._sink.add(STATEMENTS, {"statement": name})

    def _committed(self, attributes: Attributes) -> None:
        self._sink.observe(COMMIT_DURATION, float(attributes["took_s"]), {})
        for name, token_type in _TOKEN_TYPES.items():
            if name in attributes:
                model = str(attributes.get("model", "several"))
                labels = {"gen_ai.token.type": token_type, "gen_ai.request.model": model}
                self._sink.observe(TOKEN_USAGE, float(attributes[name]), labels)


def step_kind(attributes: Attributes) -> str:
    """Return whether a step calls a tool, a model, or neither."""
    return "tool" if "tool" in attributes else "model" if "model" in attributes else "step"


def _only(attributes: Attributes, *names: str) -> dict[str, str]:
    return {name: str(attributes.get(name, "")) for name in names}
