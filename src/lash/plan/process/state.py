"""The state of a process that has not ended, derived from facts that a list reads with it."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.base.codec import decode
from lash.model.process.process import ProcessPhase, ProcessRecord, ProcessState
from lash.model.wait import CustomIdentity, ToolCompletion
from lash.plan.wait import decode_identity

_CHILD: Final = "child process"


class StateFacts(msgspec.Struct, frozen=True, array_like=True):
    """The facts, as the database writes them into one array of JSON; flags are 0 or 1.

    ``is_held`` says that a lease on the process is live. ``ready_at_ms`` is None while it is parked without a due time.
    ``wait`` is the identity of an open wait. ``has_failed`` says that the last thing it did was to fail.
    """

    now_ms: int
    is_held: int
    is_runnable: int
    ready_at_ms: int | None
    wait: str | None
    has_failed: int


def process_state(text: str, record: ProcessRecord) -> ProcessState:
    """Return the state that the facts mean."""
    facts = decode(text, StateFacts, f"the state of process {record.process_id!r}")
    if facts.is_held or not facts.is_runnable:
        return ProcessState(phase=ProcessPhase.RUNNING)
    due_at_ms = facts.ready_at_ms
    if due_at_ms is not None and due_at_ms <= facts.now_ms:
        return ProcessState(phase=ProcessPhase.READY)
    signal = record.projection.wait
    if signal is not None:
        return _waiting(due_at_ms, f"signal {signal.name}")
    if facts.wait is not None:
        return _waiting(due_at_ms, _described(facts.wait))
    if due_at_ms is None:
        # A function waits in no other way.
        return _waiting(None, _CHILD)
    phase = ProcessPhase.RETRYING if facts.has_failed else ProcessPhase.SLEEPING
    return ProcessState(phase=phase, due_at_ms=due_at_ms)


def _waiting(due_at_ms: int | None, what: str) -> ProcessState:
    return ProcessState(phase=ProcessPhase.WAITING, due_at_ms=due_at_ms, waits_for=what)


def _described(identity: str) -> str:
    match decode_identity(identity, "the identity of a wait"):
        case CustomIdentity(key=key):
            return f"wait {key}"
        case ToolCompletion(tool_call_id=tool_call_id):
            return f"tool call {tool_call_id}"
        case found:
            return f"signal {found.signal_name}"
