"""Builders of valid values for tests of effects."""

from __future__ import annotations

from typing import Final

from lash.model.causal import CausalRef
from lash.model.effect import (
    Command,
    EffectBusy,
    EffectClaim,
    EffectClaimed,
    EffectDecision,
    EffectError,
    EffectRecord,
    EffectReplayed,
    EffectUnknown,
    Envelope,
    ExecutionScope,
    OperationScope,
    ProcessScope,
    Step,
    TurnScope,
)
from lash.model.lease import LeaseFence
from lash.stores.storage import Storage
from tests.factories.process import registered
from tests.factories.session import acquired, created, owner

TURN: Final = TurnScope(session_id="s", turn_id="t")
"""A turn of session ``s``."""
RUN: Final = ProcessScope(process_id="p")
"""The run of process ``p``."""
OPERATION: Final = OperationScope(operation_id="o")
"""An operation of the host."""
BROKEN: Final = EffectError(code="broken", message="it broke", raw={"at": [1, 2]})
"""A failure that is recorded."""


def effect(
    key: str = "k",
    command: Command | None = None,
    *,
    scope: ExecutionScope = TURN,
    group: str | None = None,
    cause: CausalRef | None = None,
) -> Envelope:
    """Return an envelope, by default of a step without input."""
    return Envelope(scope=scope, replay_key=key, command=command or Step(name="step"), caused_by=cause, group_key=group)


def claimed(decision: EffectDecision, *, taken_over: bool = False) -> EffectClaim:
    """Return the claim; fail the test if none was given, or not like this."""
    assert isinstance(decision, EffectClaimed), decision
    assert decision.taken_over is taken_over
    return decision.claim


def replayed(decision: EffectDecision) -> EffectRecord:
    """Return the replayed record; fail the test if there is none."""
    assert isinstance(decision, EffectReplayed), decision
    return decision.record


def busy(decision: EffectDecision) -> EffectBusy:
    """Return the runner; fail the test if there is none."""
    assert isinstance(decision, EffectBusy), decision
    return decision


def unknown(decision: EffectDecision) -> EffectRecord:
    """Return the facts of an effect whose outcome is unknown; fail the test if it is known."""
    assert isinstance(decision, EffectUnknown), decision
    return decision.record


async def in_session(storage: Storage, session_id: str = "s", *, ttl_ms: int = 60_000) -> LeaseFence:
    """Create a session, take its lease and return the fence."""
    await created(storage, session_id)
    return acquired(await storage.leases.claim(session_id, owner("worker"), ttl_ms=ttl_ms)).fence


async def everywhere(storage: Storage) -> tuple[ExecutionScope, ...]:
    """Create session ``s`` and process ``p``, and return one scope of each kind of owner."""
    await created(storage)
    await registered(storage)
    return (TURN, RUN, OPERATION)
