"""Process events: facts in the log of one process, and the semantics of their types."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.model.gap import GapReason
from lash.model.value import JSON, Count, JSONObject, Value, share_default

CANCEL_REQUESTED: Final = "process.cancel_requested"
ABANDON_REQUESTED: Final = "process.abandon_requested"
STARTED: Final = "process.started"
EXTERNAL_REF_SET: Final = "process.external_ref_set"
WAITING: Final = "process.waiting"
RESUMED: Final = "process.resumed"
ATTEMPT_FAILED: Final = "process.attempt_failed"
CONTINUED: Final = "process.continued"
COMPLETED: Final = "process.completed"
FAILED: Final = "process.failed"
CANCELLED: Final = "process.cancelled"
ABANDONED: Final = "process.abandoned"
SIGNAL_PREFIX: Final = "signal."
ANY_SIGNAL: Final = "signal.*"
"""A type of this name declares signals of every name that has no type of its own."""


class TerminalState(enum.StrEnum):
    """How a process ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


class _Selector(Value, frozen=True, kw_only=True, tag_field="select"):
    """Selects a value from the payload of an event; the ``select`` key is the kind."""


class WholePayload(_Selector, frozen=True, kw_only=True, tag="payload"):
    """The payload itself."""


class Pointer(_Selector, frozen=True, kw_only=True, tag="pointer"):
    """The value at a JSON pointer (RFC 6901), which must exist; it may be null."""

    path: str


class Constant(_Selector, frozen=True, kw_only=True, tag="const"):
    """Always the same value."""

    value: JSON


class Template(_Selector, frozen=True, kw_only=True, tag="template"):
    """A text in which every ``{name}`` is replaced, all at once, by the field of that name."""

    template: str
    fields: dict[str, Selector] = msgspec.field(default_factory=dict)


class Present(_Selector, frozen=True, kw_only=True, tag="present"):
    """Whether there is a value at a JSON pointer."""

    path: str


Selector: TypeAlias = WholePayload | Pointer | Constant | Template | Present


class TerminalSpec(Value, frozen=True, kw_only=True):
    """An event of this type ends the process. ``await_output`` selects the outcome for its waiters."""

    state: TerminalState
    await_output: Selector | None = None


class WakeSpec(Value, frozen=True, kw_only=True):
    """An event of this type wakes a session.

    ``when``, if given, must select something truthy. Without ``dedupe_key`` each event is a separate wake; with one,
    wakes of equal keys to one session are one wake, across events and processes.
    """

    input: Selector
    when: Selector | None = None
    dedupe_key: Selector | None = None


class EventSemantics(Value, frozen=True, kw_only=True):
    """What an event of a type does in addition to being logged."""

    terminal: TerminalSpec | None = None
    wake: WakeSpec | None = None


PLAIN: Final = EventSemantics()


class EventType(Value, frozen=True, kw_only=True):
    """A declared kind of event. ``payload_schema`` is a JSON schema.

    An object schema that lists properties, and does not mention others, refuses others.
    """

    name: str
    payload_schema: JSONObject = msgspec.field(default_factory=dict)
    semantics: EventSemantics = PLAIN

    def __post_init__(self) -> None:
        if self.semantics is not PLAIN:
            share_default(self, "semantics", PLAIN)


class EventDraft(Value, frozen=True, kw_only=True):
    """An event to append. ``replay_key`` makes it safe to repeat: the first event under the key is returned."""

    event_type: str
    payload: JSON = None
    replay_key: str | None = None
    wake_session_id: str | None = None
    """The session to wake, instead of the one that the registration names."""


class Wake(Value, frozen=True, kw_only=True):
    """A wake that an event causes, whether or not its target session exists."""

    wake_id: str
    target_session_id: str | None
    input: str
    dedupe_key: str


class ProcessEvent(Value, frozen=True, kw_only=True):
    """One fact in the log of a process, numbered from 1 without gaps."""

    process_id: str
    sequence: Count
    event_type: str
    payload: JSON = None
    replay_key: str | None = None
    wake: Wake | None = None
    occurred_at_ms: int


class EventPage(Value, frozen=True, kw_only=True):
    """Events of all processes in an order that a cursor can resume; ``cursor`` is the position after the last one.

    With a ``gap`` something after the reader's cursor is missing: load the processes after reading this page, and go on
    from its cursor.
    """

    events: tuple[ProcessEvent, ...]
    cursor: str
    gap: GapReason | None = None


class WakeState(enum.StrEnum):
    """The state of a wake."""

    NO_TARGET = "no_target"
    """The wake has no target session."""
    QUEUED = "queued"
    """The wake is in the queue of its target."""
    ACKNOWLEDGED = "acknowledged"
    """A commit consumed the wake, or a host acknowledged it by hand."""
    MERGED = "merged"
    """An earlier wake of the same key replaces it."""
    UNDELIVERABLE = "undeliverable"
    """The target session does not exist, or was deleted before it could get the wake."""


class WakeRecord(Value, frozen=True, kw_only=True):
    """A wake and its state."""

    process_id: str
    sequence: Count
    event_type: str
    wake: Wake
    state: WakeState
    batch_id: str | None = None


class Appended(Value, frozen=True, kw_only=True):
    """The answer to an append. A replay returns the first event and wrote nothing."""

    event: ProcessEvent
    replayed: bool = False
    wake: WakeRecord | None = None
