"""The rows of those queries about processes that answer several things at once."""

from __future__ import annotations

import msgspec

from lash.model.process.event import WakeState
from lash.plan.lease import LeaseRow
from lash.plan.process.event import EventRow
from lash.plan.process.grant import DetachedRow, GrantRow
from lash.plan.process.process import ProcessRow
from lash.plan.process.wake import WakeRow


class KnownEvent(msgspec.Struct, frozen=True, array_like=True):
    """A stored event, and what became of its wake if it has one."""

    event: EventRow
    state: WakeState | None
    batch_id: str | None


class EventFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a plan must know about an append; ``known`` is the event of its replay key."""

    now_ms: int
    process: ProcessRow
    lease: LeaseRow
    known: KnownEvent | None


class AppendAnswer(msgspec.Struct, frozen=True, array_like=True):
    """When an event was appended, and what became of its wake if it has one."""

    now_ms: int
    state: WakeState | None
    batch_id: str | None


class EventsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some events of a process that exists."""

    process_key: int
    events: list[EventRow]


class WakesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some wakes of a process that exists."""

    process_key: int
    wakes: list[WakeRow]


class PruneAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Which processes went, and whether more could."""

    process_ids: list[str]
    more: bool


class ProcessAcquireAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Which process, the time, where the process stood, its lease row as it was, and as it is if it was taken.

    ``wake_seq`` counts the reasons to run, if it was taken; ``has_effects`` says that something is recorded of it,
    ``started`` that the event of the start was appended.
    """

    process_key: int
    now_ms: int
    last_sequence: int
    wake_session_id: str | None
    before: LeaseRow
    taken: LeaseRow | None
    wake_seq: int | None
    has_effects: bool
    started: bool


class BeginAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A process that was registered and begun, and the fencing number of its lease."""

    process: ProcessRow
    fencing: int


class EndAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A process that was ended, and when."""

    process_key: int
    now_ms: int


class ProcessExtendAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A lease whose expiry was moved, and the number of reasons to run its process."""

    row: LeaseRow
    wake_seq: int


class GrantsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The grants of a process that exists."""

    process_key: int
    grants: list[GrantRow]


class DetachAnswer(msgspec.Struct, frozen=True, array_like=True):
    """How many grants and wake targets went, and which running processes lost a grant."""

    revoked: int
    cleared: int
    processes: list[DetachedRow]


class HeldGrants(msgspec.Struct, frozen=True, array_like=True):
    """Of which processes a scope has a grant."""

    process_ids: list[str]
