"""Processes: durable units of background work."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.model.causal import CausalRef
from lash.model.gap import GapReason
from lash.model.lease import Lease, LeaseOwner
from lash.model.process.event import EventType, TerminalState
from lash.model.value import JSON, Count, JSONObject, Value, share_default


class AgentScope(Value, frozen=True, kw_only=True):
    """A session, or one agent frame of it."""

    session_id: str
    agent_frame_id: str | None = None


class HostOriginator(Value, frozen=True, kw_only=True, tag_field="type", tag="host"):
    """The host started the process."""


class SessionOriginator(Value, frozen=True, kw_only=True, tag_field="type", tag="session"):
    """A session started the process."""

    scope: AgentScope


HOST: Final = HostOriginator()


class Provenance(Value, frozen=True, kw_only=True):
    """Where a process came from. It is informational only."""

    originator: HostOriginator | SessionOriginator = HOST
    caused_by: CausalRef | None = None
    rerun_of: str | None = None
    """The id of the process that this one repeats with the same input."""
    traceparent: str | None = None
    """The W3C trace context of the start. It is not part of the registration's identity."""

    def __post_init__(self) -> None:
        if self.originator is not HOST:
            share_default(self, "originator", HOST)


_UNKNOWN: Final = Provenance()


class _Input(Value, frozen=True, kw_only=True, tag_field="type"):
    """What a process does; the ``type`` key is the kind."""


class ToolCallInput(_Input, frozen=True, kw_only=True, tag="tool_call"):
    """Run one frozen tool call."""

    call_id: str
    tool_id: str
    tool_name: str
    arguments: JSON = None
    replay: JSON = None
    prepared_payload: JSON = None


class EngineInput(_Input, frozen=True, kw_only=True, tag="engine"):
    """Run an engine, such as durable functions; the engine defines the payload."""

    kind: str
    payload: JSON = None


class SessionTurnInput(_Input, frozen=True, kw_only=True, tag="session_turn"):
    """Run one turn in a child session."""

    create_request: JSONObject
    turn_input: JSONObject
    output_contract: JSONObject = msgspec.field(default_factory=dict)
    label: str | None = None


class ExternalInput(_Input, frozen=True, kw_only=True, tag="external"):
    """Another system does the work and reports its end; no worker runs it."""

    metadata: JSONObject = msgspec.field(default_factory=dict)


ProcessInput: TypeAlias = ToolCallInput | EngineInput | SessionTurnInput | ExternalInput


class ProcessIdentity(Value, frozen=True, kw_only=True):
    """The kind, label and definition that lists show and filter by."""

    kind: str
    label: str | None = None
    definition: JSON = None


class Recovery(enum.StrEnum):
    """Which worker may continue a process whose worker died."""

    RERUNNABLE = "rerunnable"
    """Any worker may run it again."""
    OWNER_BOUND = "owner_bound"
    """Once started, only the same owner may continue it."""
    EXTERNAL = "external"
    """No worker runs it."""


class Registration(Value, frozen=True, kw_only=True):
    """The immutable specification of a process. An equal one can be registered again; another of its id conflicts."""

    process_id: str
    input: ProcessInput
    recovery: Recovery = Recovery.RERUNNABLE
    identity: ProcessIdentity | None = None
    event_types: tuple[EventType, ...] = ()
    provenance: Provenance = _UNKNOWN
    environment_ref: str | None = None
    wake_session_id: str | None = None

    def __post_init__(self) -> None:
        if self.provenance is not _UNKNOWN:
            share_default(self, "provenance", _UNKNOWN)


class FailureClass(enum.StrEnum):
    INVALID_REQUEST = "invalid_request"
    UNAVAILABLE = "unavailable"
    PERMISSION_DENIED = "permission_denied"
    TIMEOUT = "timeout"
    EXECUTION = "execution"
    EXTERNAL = "external"
    RESOURCE_LIMIT = "resource_limit"
    INTERNAL = "internal"


class _Outcome(Value, frozen=True, kw_only=True, tag_field="type"):
    """How a process ended, as its waiters receive it; the ``type`` key is the kind."""


class Success(_Outcome, frozen=True, kw_only=True, tag="success"):
    value: JSON = None


class Failure(_Outcome, frozen=True, kw_only=True, tag="failure"):
    failure_class: FailureClass = FailureClass.EXECUTION
    code: str
    message: str
    raw: JSON = None


class Cancellation(_Outcome, frozen=True, kw_only=True, tag="cancelled"):
    message: str
    raw: JSON = None


class Abandonment(_Outcome, frozen=True, kw_only=True, tag="abandoned"):
    """The outcome is unknown and stays so; ``evidence`` is the reason."""

    message: str
    evidence: JSONObject = msgspec.field(default_factory=dict)


Outcome: TypeAlias = Success | Failure | Cancellation | Abandonment


class ProcessStatus(enum.StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


class SignalWait(Value, frozen=True, kw_only=True):
    """The process is parked until the ``ordinal``-th signal of a name, counted from 1, is in its log.

    Its ``process.waiting`` event has the time since when it waits.
    """

    name: str
    ordinal: Count


class ExternalRef(Value, frozen=True, kw_only=True):
    """The id of the process in another system."""

    backend: str
    id: str
    metadata: JSON = None


class Projection(Value, frozen=True, kw_only=True):
    """The state of a process: the fold of the events in its log."""

    status: ProcessStatus = ProcessStatus.RUNNING
    outcome: Outcome | None = None
    wait: SignalWait | None = None
    external_ref: ExternalRef | None = None
    started_by: LeaseOwner | None = None
    cancel_reason: str | None = None
    cancel_requested: bool = False
    abandon_requested: bool = False
    run: int = 1
    """The number of the run: one more for each continuation."""
    continued_at: int = 0
    """The number of the event that began this run; 0 in the first run."""


class ProcessPhase(enum.StrEnum):
    """What a process that has not ended does at the moment."""

    RUNNING = "running"
    """A worker holds its lease. An external process is always running."""
    READY = "ready"
    """It runs as soon as a worker has a free slot."""
    SLEEPING = "sleeping"
    """It is parked until a time."""
    WAITING = "waiting"
    """It is parked until a signal, the resolution of a wait, or the end of a child."""
    RETRYING = "retrying"
    """An attempt failed, and it is parked until the next one."""


class ProcessState(Value, frozen=True, kw_only=True):
    """The phase of a process, derived from its lease, its waits and its steps when it is read.

    ``due_at_ms`` is when a parked process runs at the latest; None if only what it waits for makes it run.
    ``waits_for`` describes what a waiting process waits for, such as ``signal approve``; None if that is unknown.
    """

    phase: ProcessPhase
    due_at_ms: int | None = None
    waits_for: str | None = None


class ProcessRecord(Value, frozen=True, kw_only=True):
    """A process at one moment. ``last_sequence`` is the number of events in its log.

    ``state`` is None unless a list was asked for it, and for a process that has ended.
    """

    process_id: str
    registration_hash: str
    registration: Registration
    projection: Projection
    wake_session_id: str | None
    last_sequence: Count
    created_at_ms: int
    updated_at_ms: int
    state: ProcessState | None = None

    @property
    def status(self) -> ProcessStatus:
        return self.projection.status

    @property
    def is_terminal(self) -> bool:
        return self.projection.status is not ProcessStatus.RUNNING


class Registered(Value, frozen=True, kw_only=True):
    """The answer to a registration."""

    record: ProcessRecord
    created: bool


class ProcessFilter(Value, frozen=True, kw_only=True):
    """Which processes a list returns. A field that is not set matches every process.

    ``waiting`` is true for a process that waits for a signal, ``parked`` for one that sleeps, waits or retries.
    ``parent_process_id`` is the process that started it.
    """

    process_id: str | None = None
    status: ProcessStatus | None = None
    waiting: bool | None = None
    parked: bool | None = None
    kind: str | None = None
    label: str | None = None
    definition: JSON | msgspec.UnsetType = msgspec.UNSET
    originator_session_id: str | None = None
    wake_session_id: str | None = None
    parent_process_id: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None


class ProcessPage(Value, frozen=True, kw_only=True):
    """Some processes, the newest first, and the cursor of the next page."""

    processes: tuple[ProcessRecord, ...]
    next_cursor: str | None = None


class ProcessVersion(Value, frozen=True, kw_only=True):
    """How many processes of one definition have not ended."""

    identity: ProcessIdentity | None
    count: Count
    continued: Count
    """How many of them continued as new since they were started. They run the version of the worker that did so."""
    oldest_at_ms: int
    """When the first of them was registered."""

    @property
    def name(self) -> str:
        return "" if self.identity is None else self.identity.label or self.identity.kind

    @property
    def version(self) -> str | None:
        """The version under which they were started; None if their definition has none."""
        definition = None if self.identity is None else self.identity.definition
        version = definition.get("version") if isinstance(definition, dict) else None
        return version if isinstance(version, str) else None


class Grant(Value, frozen=True, kw_only=True):
    """A scope may see and name a process. It never affects whether the process runs."""

    scope: AgentScope
    process_id: str
    kind: str | None = None
    label: str | None = None


class GrantEntry(Value, frozen=True, kw_only=True):
    """A grant and its process."""

    grant: Grant
    record: ProcessRecord


class SessionDetached(Value, frozen=True, kw_only=True):
    """The grants and wake targets that were removed when a session was detached; no process was cancelled."""

    session_id: str
    revoked_grant_count: Count = 0
    cleared_wake_target_count: Count = 0
    orphaned_process_ids: tuple[str, ...] = ()
    preserved_process_ids: tuple[str, ...] = ()


class RefusalReason(enum.StrEnum):
    """Why a claim on a process was refused."""

    BUSY = "busy"
    TERMINAL = "terminal"
    EXTERNAL = "external"
    OWNER_BOUND = "owner_bound"


class ProcessAcquired(Value, frozen=True, kw_only=True):
    """The caller may run the process.

    ``wake_seq`` counts the reasons to run the process so far. A caller that reads the process after the claim has seen
    all of them. Passed back when the process is parked, the number shows whether another one came meanwhile.

    ``has_effects`` is false only if the process has no recorded effects, so that a run has nothing to read before it
    starts: after the claim only the holder records. It is always true for a re-entered lease, and may be true without
    effects if the process was claimed before.

    ``crashes`` is how many runs since the process was last parked ended without releasing their lease: a run of
    crashes. It is not known (0) for a re-entered lease.
    """

    lease: Lease
    record: ProcessRecord
    wake_seq: Count
    has_effects: bool = True
    reentered: bool = False
    displaced: Lease | None = None
    crashes: Count = 0


class ProcessRefused(Value, frozen=True, kw_only=True):
    """The caller may not run the process; nothing was changed."""

    reason: RefusalReason
    holder: Lease | None = None


ProcessLeaseOutcome: TypeAlias = ProcessAcquired | ProcessRefused


class ChangeKind(enum.StrEnum):
    REGISTERED = "registered"
    EVENT = "event"
    CHANGED = "changed"
    PRUNED = "pruned"


class ProcessChange(Value, frozen=True, kw_only=True):
    """One change of one process. ``sequence`` is that of the event, for changes that are events."""

    process_id: str
    kind: ChangeKind
    sequence: Count | None = None
    status: ProcessStatus | None = None


class ChangePage(Value, frozen=True, kw_only=True):
    """Changes in an order that a cursor can resume; ``cursor`` is the position after the last one.

    With a ``gap`` something after the reader's cursor is missing: load the processes after reading this page, and go on
    from its cursor.
    """

    changes: tuple[ProcessChange, ...]
    cursor: str
    gap: GapReason | None = None


class PrunedProcesses(Value, frozen=True, kw_only=True):
    """The processes that a pruning removed; ``more`` is true if another call can remove more."""

    pruned_process_ids: tuple[str, ...] = ()
    more: bool = False


TERMINAL_STATUS = {state: ProcessStatus(state.value) for state in TerminalState}
"""The status of each terminal state."""
