"""Builders of valid values for tests of processes."""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from lash.model.lease import Lease
from lash.model.process.event import (
    EventDraft,
    EventSemantics,
    EventType,
    Pointer,
    Selector,
    TerminalSpec,
    TerminalState,
    WakeSpec,
)
from lash.model.process.process import (
    AgentScope,
    EngineInput,
    ExternalInput,
    Grant,
    Outcome,
    ProcessAcquired,
    ProcessIdentity,
    ProcessInput,
    ProcessLeaseOutcome,
    ProcessRecord,
    Provenance,
    Recovery,
    Registration,
    SignalWait,
    Success,
    ToolCallInput,
)
from lash.model.queue import Batch, Boundary, Claim
from lash.model.session.commit import Commit
from lash.model.value import JSON
from lash.stores.storage import Storage
from tests.factories.session import acquired, owner

NOTE: Final = EventType(name="note")
"""Accepts any payload and has no effect."""
COUNT: Final = EventType(
    name="count", payload_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
)
"""Accepts an object with an integer ``n`` and nothing else."""
NEWS: Final = EventType(name="news", semantics=EventSemantics(wake=WakeSpec(input=Pointer(path="/text"))))
"""Wakes a session with the ``text`` of its payload."""
GO: Final = EventType(name="signal.go")
"""The signal ``go``."""
STOP: Final = EventType(name="signal.stop", payload_schema={"type": "string"})
"""The signal ``stop``, whose payload is text."""


class RegistrationFields(TypedDict, total=False):
    """The optional fields of a registration."""

    input: ProcessInput
    recovery: Recovery
    identity: ProcessIdentity | None
    provenance: Provenance
    environment_ref: str | None
    wake_session_id: str | None


def process(process_id: str = "p", *event_types: EventType, **fields: Unpack[RegistrationFields]) -> Registration:
    """Return the registration of a process that workers run; it declares `NOTE` by default."""
    fields.setdefault("input", EngineInput(kind="work"))
    if isinstance(fields["input"], EngineInput | ToolCallInput):
        fields.setdefault("environment_ref", "environment")
    return Registration(process_id=process_id, event_types=event_types or (NOTE,), **fields)


def external(process_id: str = "p", *event_types: EventType, wake_session_id: str | None = None) -> Registration:
    """Return the registration of an external process."""
    return process(process_id, *event_types, input=ExternalInput(), wake_session_id=wake_session_id)


def ending(name: str, state: TerminalState, output: Selector | None = None) -> EventType:
    """Return a type whose events end the process."""
    return EventType(name=name, semantics=EventSemantics(terminal=TerminalSpec(state=state, await_output=output)))


def waking(
    name: str, wake_input: Selector, *, when: Selector | None = None, dedupe_key: Selector | None = None
) -> EventType:
    """Return a type whose events wake a session."""
    spec = WakeSpec(input=wake_input, when=when, dedupe_key=dedupe_key)
    return EventType(name=name, semantics=EventSemantics(wake=spec))


def event(
    event_type: str = "note", payload: JSON = None, *, key: str | None = None, wake: str | None = None
) -> EventDraft:
    """Return an event to append."""
    return EventDraft(event_type=event_type, payload=payload, replay_key=key, wake_session_id=wake)


def news(text: str = "hello", *, key: str | None = None, wake: str | None = None) -> EventDraft:
    """Return an event of type `NEWS`."""
    return event("news", {"text": text}, key=key, wake=wake)


def wait(name: str = "go", ordinal: int = 1) -> SignalWait:
    """Return the state of being parked on a signal."""
    return SignalWait(name=name, ordinal=ordinal)


def scope(session_id: str, frame_id: str | None = None) -> AgentScope:
    """Return a session, or one frame of it."""
    return AgentScope(session_id=session_id, agent_frame_id=frame_id)


def granted(
    session_id: str,
    process_id: str = "p",
    *,
    frame: str | None = None,
    kind: str | None = None,
    label: str | None = None,
) -> Grant:
    """Return a grant."""
    return Grant(scope=scope(session_id, frame), process_id=process_id, kind=kind, label=label)


def process_lease(outcome: ProcessLeaseOutcome) -> Lease:
    """Return the acquired lease; fail the test if there is none."""
    assert isinstance(outcome, ProcessAcquired), outcome
    return outcome.lease


async def registered(storage: Storage, *process_ids: str, outcome: Outcome | None = None) -> None:
    """Register processes (``p`` if none are named), and end them if an outcome is given."""
    for process_id in process_ids or ("p",):
        await storage.processes.register(process(process_id))
        if outcome is not None:
            await storage.processes.complete(process_id, outcome)


async def stored(storage: Storage, process_id: str = "p") -> ProcessRecord:
    """Return the record of a process that must exist."""
    record = await storage.processes.get(process_id)
    assert record is not None, process_id
    return record


async def consume(storage: Storage, session_id: str = "s") -> tuple[Batch, ...]:
    """Claim the next work of a session, commit its consumption, and return it."""
    lease = acquired(await storage.leases.claim(session_id, owner("consumer"), ttl_ms=60_000))
    claim = await storage.queue.claim(lease.fence, boundary=Boundary.IDLE, ttl_ms=60_000)
    assert isinstance(claim, Claim), claim
    head = await storage.session(session_id).head()
    revision = 0 if head is None else head.revision
    values = Commit(
        session_id=session_id,
        expected_revision=revision,
        fence=lease.fence,
        release=lease.fence,
        completions=(claim.completion,),
    )
    await storage.session(session_id).commit(values)
    return claim.batches


DONE: Final = Success(value={"answer": 42})
"""How most processes here end."""
