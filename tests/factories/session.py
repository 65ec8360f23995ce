"""Builders of valid values for tests of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypedDict, Unpack

from msgspec import UNSET, UnsetType

from lash.base.compression import BlobRef
from lash.model.lease import Acquired, Lease, LeaseFence, LeaseOutcome, LeaseOwner, LocalProcess
from lash.model.record import RecordChange
from lash.model.session.checkpoint import CheckpointDraft, TurnState
from lash.model.session.commit import Append, Commit, GraphDelta
from lash.model.session.frame import AgentFrame
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node, PluginEntry
from lash.model.session.session import SessionConfig
from lash.model.session.trace import TurnTrace
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.model.value import JSON
from lash.stores.session import Session
from lash.stores.storage import Storage

MOMENT: Final = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
"""The time of everything made here, unless another is given."""


def node(node_id: str, parent: str | None = None, text: str | None = None, *, role: Role = Role.USER) -> Node:
    """Return a message node, by default with its id as the text."""
    message = Message.of_text(node_id, role, node_id if text is None else text)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=MessageEntry(message=message))


def plugin_node(node_id: str, body: JSON, parent: str | None = None) -> Node:
    """Return a node with any JSON value."""
    entry = PluginEntry(plugin_type="example", body=body)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=MOMENT, entry=entry)


def chain(*node_ids: str, after: str | None = None) -> tuple[Node, ...]:
    """Return message nodes, each below the one before, the first below ``after``."""
    parents = (after, *node_ids[:-1])
    return tuple(node(node_id, parent) for node_id, parent in zip(node_ids, parents, strict=True))


def append(*nodes: Node, leaf: str | None | UnsetType = UNSET) -> Append:
    """Return a delta that appends the nodes."""
    return Append(nodes=nodes, leaf_node_id=leaf)


class CommitFields(TypedDict, total=False):
    """The optional fields of a commit."""

    turn_id: str | None
    fence: LeaseFence | None
    release: LeaseFence | None
    config: SessionConfig
    frames: tuple[AgentFrame, ...]
    current_frame_id: str | None
    graph: GraphDelta
    checkpoint: CheckpointDraft
    usage: tuple[UsageEntry, ...]
    attachments: tuple[str, ...]
    records: tuple[RecordChange, ...]
    trace: TurnTrace | None


def commit(expected_revision: int, *nodes: Node, session_id: str = "s", **fields: Unpack[CommitFields]) -> Commit:
    """Return a commit to session ``s``, or the one named, that appends the nodes if there are any."""
    if nodes:
        fields["graph"] = append(*nodes)
    return Commit(session_id=session_id, expected_revision=expected_revision, **fields)


def frame(frame_id: str, *, previous: str | None = None, state: bytes | None = None) -> AgentFrame:
    """Return an active frame, with its execution state if there is one."""
    return AgentFrame(frame_id=frame_id, previous_frame_id=previous, created_at=MOMENT, execution_state=state)


def draft(turn_index: int = 0, components: Mapping[str, bytes | BlobRef] | None = None) -> CheckpointDraft:
    """Return a checkpoint of this turn with these components."""
    return CheckpointDraft(turn_state=TurnState(turn_index=turn_index), components=components or {})


def spent(input_tokens: int, output_tokens: int = 0, *, source: str = "turn", model: str = "m") -> UsageEntry:
    """Return the usage of one model call."""
    return UsageEntry(
        source=source, model=model, usage=TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    )


def owner(owner_id: str, incarnation_id: str = "1", *, process: LocalProcess | None = None) -> LeaseOwner:
    """Return an owner of leases."""
    return LeaseOwner(owner_id=owner_id, incarnation_id=incarnation_id, process=process)


def acquired(outcome: LeaseOutcome) -> Lease:
    """Return the acquired lease; fail the test if there is none."""
    assert isinstance(outcome, Acquired), outcome
    return outcome.lease


async def created(storage: Storage, session_id: str = "s") -> Session:
    """Create a session and return a handle on it."""
    await storage.sessions.create(session_id)
    return storage.session(session_id)


async def started(storage: Storage, session_id: str = "s", *node_ids: str) -> Session:
    """Create a session with a first commit of a chain of message nodes (``a`` by default): revision 1."""
    session = await created(storage, session_id)
    await session.commit(commit(0, *chain(*(node_ids or ("a",))), session_id=session_id))
    return session
