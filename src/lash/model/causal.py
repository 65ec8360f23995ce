"""What caused a node or a frame to exist."""

from __future__ import annotations

from typing import TypeAlias

from lash.model.value import Count, Value


class _Cause(Value, frozen=True, kw_only=True, tag_field="type"):
    """A reference to a cause; the ``type`` key is the kind."""


class TurnCause(_Cause, frozen=True, kw_only=True, tag="turn"):
    session_id: str
    turn_id: str


class EffectCause(_Cause, frozen=True, kw_only=True, tag="effect"):
    session_id: str
    effect_id: str
    turn_id: str | None = None


class ToolCallCause(_Cause, frozen=True, kw_only=True, tag="tool_call"):
    session_id: str
    call_id: str


class ProcessCause(_Cause, frozen=True, kw_only=True, tag="process"):
    process_id: str


class ProcessEventCause(_Cause, frozen=True, kw_only=True, tag="process_event"):
    process_id: str
    sequence: Count


class TriggerOccurrenceCause(_Cause, frozen=True, kw_only=True, tag="trigger_occurrence"):
    occurrence_id: str


class NodeCause(_Cause, frozen=True, kw_only=True, tag="session_node"):
    session_id: str
    node_id: str


CausalRef: TypeAlias = (
    TurnCause | EffectCause | ToolCallCause | ProcessCause | ProcessEventCause | TriggerOccurrenceCause | NodeCause
)
