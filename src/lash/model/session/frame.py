"""Agent frames: durable context boundaries inside one session."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from lash.base.compression import BlobRef
from lash.model.causal import CausalRef
from lash.model.value import ClosedValue, Count, JSONObject, Positive, Timestamp, Value, share_default

INITIAL: Final = "initial"
CONTINUE_AS: Final = "continue_as"
COMPACTION: Final = "compaction"


class ModelLimits(ClosedValue, frozen=True, kw_only=True):
    context_window_tokens: Positive = 1
    output_token_capacity: Positive | None = None


_LIMITS: Final = ModelLimits()


class ModelSpec(ClosedValue, frozen=True, kw_only=True):
    """The model that is called, and its limits."""

    id: str = ""
    variant: str | None = None
    limits: ModelLimits = _LIMITS

    def __post_init__(self) -> None:
        share_default(self, "limits", _LIMITS)


_MODEL: Final = ModelSpec()


class SessionPolicy(ClosedValue, frozen=True, kw_only=True):
    """How an agent runs inside a frame. Live provider objects and keys are never part of it."""

    model: ModelSpec = _MODEL
    provider_id: str = ""
    session_id: str | None = None
    autonomous: bool = False
    max_turns: Positive | None = None
    prompt: JSONObject = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        share_default(self, "model", _MODEL)


_POLICY: Final = SessionPolicy()


class PluginSource(enum.StrEnum):
    CURRENT_HOST_FRESH = "current_host_fresh"
    CURRENT_SESSION_FORK = "current_session_fork"


class ToolAccess(Value, frozen=True, kw_only=True):
    tools: tuple[str, ...] | None = None
    hidden_tools: frozenset[str] = frozenset()


_TOOL_ACCESS: Final = ToolAccess()


class SubagentAssignment(Value, frozen=True, kw_only=True):
    parent_session_id: str
    capability: str
    depth: Count
    max_depth: Count


class AgentFrameAssignment(Value, frozen=True, kw_only=True):
    """The permissions of the agent of a frame, and its assignment if it is a subagent."""

    policy: SessionPolicy = _POLICY
    plugin_options: JSONObject = msgspec.field(default_factory=dict)
    plugin_source: PluginSource = PluginSource.CURRENT_SESSION_FORK
    tool_access: ToolAccess = _TOOL_ACCESS
    subagent: SubagentAssignment | None = None
    usage_source: str | None = None

    def __post_init__(self) -> None:
        share_default(self, "policy", _POLICY)
        share_default(self, "tool_access", _TOOL_ACCESS)


_ASSIGNMENT: Final = AgentFrameAssignment()


class FrameStatus(enum.StrEnum):
    ACTIVE = "active"
    SUPERSEDED = "superseded"


class AgentFrame(Value, frozen=True, kw_only=True):
    """One context boundary. ``reason`` is an open label: unknown labels are kept unchanged.

    ``execution_state`` is for committing only: its bytes are stored once, and the frame is read back with their
    ``execution_state_ref``; ``session.blob(ref)`` returns them. A later commit sends the ref instead of the bytes.
    """

    frame_id: str
    previous_frame_id: str | None = None
    status: FrameStatus = FrameStatus.ACTIVE
    reason: str = INITIAL
    caused_by: CausalRef | None = None
    created_at: Timestamp
    assignment: AgentFrameAssignment = _ASSIGNMENT
    protocol_turn_options: JSONObject = msgspec.field(default_factory=dict)
    execution_state_ref: BlobRef | None = None
    execution_state: bytes | None = None

    def __post_init__(self) -> None:
        share_default(self, "reason", INITIAL)
        share_default(self, "assignment", _ASSIGNMENT)
