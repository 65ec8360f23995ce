"""Sessions: durable conversations, their heads and metadata, and the values that reads return."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.base.compression import BlobRef
from lash.model.causal import CausalRef
from lash.model.session.checkpoint import Checkpoint
from lash.model.session.frame import AgentFrame, ModelSpec
from lash.model.session.node import Graph
from lash.model.session.usage import UsageEntry
from lash.model.value import ClosedValue, Count, Positive, Value, share_default


class Durability(enum.StrEnum):
    """The failures that an acknowledged write survives."""

    INLINE = "inline"
    """None: the data lives as long as the storage object."""
    DURABLE = "durable"
    """Crashes of the process and of the machine."""


class RootRelation(Value, frozen=True, kw_only=True, tag_field="kind", tag="root"):
    """The session has no parent and no source."""


class ChildRelation(Value, frozen=True, kw_only=True, tag_field="kind", tag="child"):
    """The session was started for another one."""

    parent_session_id: str
    caused_by: CausalRef | None = None


class ForkRelation(Value, frozen=True, kw_only=True, tag_field="kind", tag="fork"):
    """The session was forked from a node of another one, or from before its first node."""

    source_session_id: str
    node_id: str | None = None


SessionRelation: TypeAlias = RootRelation | ChildRelation | ForkRelation


_MODEL: Final = ModelSpec()


class SessionConfig(ClosedValue, frozen=True, kw_only=True):
    """The current configuration, saved with the head."""

    provider_id: str = ""
    model: ModelSpec = _MODEL

    def __post_init__(self) -> None:
        share_default(self, "model", _MODEL)


class SessionMeta(Value, frozen=True, kw_only=True):
    """The description of a session in lists. It can be edited and is independent of the head."""

    session_id: str
    name: str
    created_at_ms: int
    model: str = ""
    cwd: str | None = None
    relation: SessionRelation = RootRelation()


class SessionHead(Value, frozen=True, kw_only=True):
    """The current state of a session. The next commit must expect its ``revision``."""

    session_id: str
    revision: Count
    config: SessionConfig
    current_frame_id: str | None
    leaf_node_id: str | None
    checkpoint_ref: BlobRef
    node_count: Count
    updated_at_ms: int


class FullGraph(Value, frozen=True, kw_only=True):
    """Read every live node of every branch, in the order of insertion; inherited nodes come first, as a path."""


class ActivePath(Value, frozen=True, kw_only=True):
    """Read the path from the root to a leaf (the head's, or the one named), or only its last nodes."""

    leaf_node_id: str | None = None
    last: Positive | None = None


ReadScope: TypeAlias = FullGraph | ActivePath


class SessionRead(Value, frozen=True, kw_only=True):
    """One revision of a session; its graph has the nodes that the scope asked for."""

    head: SessionHead
    frames: tuple[AgentFrame, ...]
    graph: Graph
    checkpoint: Checkpoint
    usage: tuple[UsageEntry, ...]


class SessionSummary(Value, frozen=True, kw_only=True):
    """One line of a session picker."""

    meta: SessionMeta
    revision: Count
    first_user_message: str
    user_message_count: Count
    updated_at_ms: int


class SessionPage(Value, frozen=True, kw_only=True):
    """Some sessions, newest first, and the cursor of the next page."""

    sessions: tuple[SessionSummary, ...]
    next_cursor: str | None = None


class VacuumReport(Value, frozen=True, kw_only=True):
    removed_node_count: Count = 0


class Retention(Value, frozen=True, kw_only=True):
    """How many checkpoints of a session are kept: the last ``keep``, or all of them if it is None."""

    keep: Positive | None = 1

    @classmethod
    def latest(cls) -> Retention:
        return cls()

    @classmethod
    def last(cls, count: int) -> Retention:
        return msgspec.convert({"keep": count}, cls)

    @classmethod
    def all(cls) -> Retention:
        return cls(keep=None)
