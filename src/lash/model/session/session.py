"""Sessions: durable conversations, their heads and metadata, and the values that reads return."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec

from lash.base.compression import BlobRef
from lash.base.shapes import convert
from lash.model.causal import CausalRef
from lash.model.session.checkpoint import Checkpoint
from lash.model.session.frame import AgentFrame, ModelSpec
from lash.model.session.node import Graph
from lash.model.session.usage import UsageEntry
from lash.model.value import ClosedValue, Count, JSONObject, Positive, Value, share_default


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
        if self.model is not _MODEL:
            share_default(self, "model", _MODEL)


class Retention(Value, frozen=True, kw_only=True):
    """How many checkpoints of a session are kept: the last ``keep``, or all of them if it is None."""

    keep: Positive | None = 1

    @classmethod
    def latest(cls) -> Retention:
        return cls()

    @classmethod
    def last(cls, count: int) -> Retention:
        return convert({"keep": count}, cls)

    @classmethod
    def all(cls) -> Retention:
        return cls(keep=None)


class SessionMeta(Value, frozen=True, kw_only=True):
    """The description of a session in lists. It can be edited and is independent of the head.

    ``owner`` and ``labels`` are indexed: lists filter by them. ``metadata`` is JSON of the application's own. From
    ``expires_at_ms`` on, maintenance deletes the session; until then it is like any other. ``retention`` says how many
    checkpoints it keeps; None: as many as the storage is opened with.
    """

    session_id: str
    name: str
    created_at_ms: int
    model: str = ""
    cwd: str | None = None
    relation: SessionRelation = RootRelation()
    owner: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    metadata: JSONObject = msgspec.field(default_factory=dict)
    expires_at_ms: int | None = None
    retention: Retention | None = None


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


class SessionState(enum.StrEnum):
    """What a session is doing: the first of these that applies."""

    RUNNING = "running"
    """A live lease is held: a worker runs a turn."""
    QUEUED = "queued"
    """Input is queued, also if it is delayed, or the session pauses after a failure."""
    WAITING = "waiting"
    """A turn is parked until something happens, or a wait of the session is open."""
    IDLE = "idle"


class SessionOrder(enum.StrEnum):
    """What a list of sessions is sorted by."""

    CREATED = "created"
    """The order in which the sessions were created."""
    ACTIVE = "active"
    """The time of the last commit; of the creation, before the first."""


class SessionFilter(Value, frozen=True, kw_only=True):
    """Which sessions a list returns. A field that is not set matches every session.

    A session must have all of the ``labels``. ``agent`` is that of the session's last turn. The times are exclusive;
    ``active`` is the time of the last commit. ``source_session_id`` is the session that it was forked from. Each
    word of ``text`` must be the beginning of a word of the session's first message (of its first 1,000 characters) or
    of its labels, in whatever case. A session without a message is not found by a text.
    """

    text: str | None = None
    prefix: str | None = None
    owner: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    agent: str | None = None
    state: SessionState | None = None
    source_session_id: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    active_after_ms: int | None = None
    active_before_ms: int | None = None


class SessionCounts(Value, frozen=True, kw_only=True):
    """What a session has: batches in its queue, claimed or not, dead letters, and open waits."""

    queued: Count = 0
    dead: Count = 0
    waits: Count = 0


class SessionSummary(Value, frozen=True, kw_only=True):
    """One line of a session picker. The last five fields are None unless the list was asked for them.

    ``head`` and ``checkpoint`` are None too before the first commit. ``agent`` is that of the last turn.
    ``waiting_for`` comes with the state: what the parked turn of a waiting session waits for, if it has one.
    """

    meta: SessionMeta
    revision: Count
    first_user_message: str
    user_message_count: Count
    updated_at_ms: int
    agent: str | None = None
    state: SessionState | None = None
    waiting_for: str | None = None
    counts: SessionCounts | None = None
    head: SessionHead | None = None
    checkpoint: Checkpoint | None = None


class SessionPage(Value, frozen=True, kw_only=True):
    """Some sessions in the order of the list, and the cursor of the next page."""

    sessions: tuple[SessionSummary, ...]
    next_cursor: str | None = None


class VacuumReport(Value, frozen=True, kw_only=True):
    removed_node_count: Count = 0
