"""The kinds of events that the machines use: their declarations, and their meaning in plain Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lash.model.process.event import (
    EventSemantics,
    EventType,
    Pointer,
    Present,
    Template,
    TerminalSpec,
    TerminalState,
    WakeSpec,
    WholePayload,
)
from lash.model.process.process import Abandonment, Cancellation, Failure, Outcome, Success

DECLARED: Final = (
    EventType(name="note"),
    EventType(
        name="count",
        payload_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    ),
    EventType(name="news", semantics=EventSemantics(wake=WakeSpec(input=Pointer(path="/text")))),
    EventType(
        name="ping",
        semantics=EventSemantics(
            wake=WakeSpec(
                input=Template(template="ping {who}", fields={"who": Pointer(path="/who")}),
                when=Present(path="/who"),
                dedupe_key=Pointer(path="/who"),
            )
        ),
    ),
    EventType(
        name="done",
        semantics=EventSemantics(
            terminal=TerminalSpec(state=TerminalState.COMPLETED, await_output=Pointer(path="/answer"))
        ),
    ),
    EventType(
        name="broke",
        semantics=EventSemantics(terminal=TerminalSpec(state=TerminalState.FAILED, await_output=WholePayload())),
    ),
    EventType(name="signal.go"),
    EventType(name="signal.stop", payload_schema={"type": "string"}),
)
"""Declared by every process of the machines."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The wake that an event asks for: its text, and the key that it shares with others, if any."""

    text: str
    key: str | None


@dataclasses.dataclass(frozen=True)
class Meaning:
    """What an event of a type means."""

    fits: Callable[[Any], bool] = lambda _payload: True
    yields: Callable[[Any], bool] = lambda _payload: True
    """Whether it has what waiters for the end receive; asked of a running process only."""
    wakes: Callable[[Any], Wanted | None] = lambda _payload: None
    ends: Callable[[Any], Outcome] | None = None


def _news(payload: Any) -> Wanted | None:  # noqa: ANN401 (any JSON)
    return Wanted(payload["text"], None)


def _ping(payload: Any) -> Wanted | None:  # noqa: ANN401 (any JSON)
    if not isinstance(payload, dict) or "who" not in payload:
        return None
    return Wanted(f"ping {payload['who']}", payload["who"])


def _has(name: str) -> Callable[[Any], bool]:
    return lambda payload: isinstance(payload, dict) and name in payload


def _core_end(shape: type[Outcome]) -> Meaning:
    def read(payload: Any) -> Outcome:  # noqa: ANN401 (any JSON)
        outcome: Outcome = msgspec.convert(payload["outcome"], shape)
        return outcome

    return Meaning(ends=read)


MEANINGS: Final[dict[str, Meaning]] = {
    "note": Meaning(),
    "count": Meaning(
        fits=lambda payload: isinstance(payload, dict) and list(payload) == ["n"] and type(payload["n"]) is int
    ),
    "news": Meaning(fits=_has("text"), wakes=_news),
    "ping": Meaning(wakes=_ping),
    "done": Meaning(yields=_has("answer"), ends=lambda payload: Success(value=payload["answer"])),
    "broke": Meaning(ends=lambda payload: Failure(code="process_failed", message=str(payload), raw=payload)),
    "signal.go": Meaning(),
    "signal.stop": Meaning(fits=lambda payload: isinstance(payload, str)),
    "process.completed": _core_end(Success),
    "process.failed": _core_end(Failure),
    "process.cancelled": _core_end(Cancellation),
    "process.abandoned": _core_end(Abandonment),
    **{
        f"process.{name}": Meaning()
        for name in ("cancel_requested", "abandon_requested", "started", "external_ref_set", "waiting", "resumed")
    },
}
"""Declared and common types by name. Any other name is unknown to a process."""
