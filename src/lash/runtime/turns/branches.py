"""Branches of a conversation: a message instead of an earlier one, another reply, another active path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lash.backend.liveness import current_owner
from lash.errors import InvalidInput, NodeNotFound, SessionBusy
from lash.model.lease import Busy, LeaseFence
from lash.model.queue import AttachmentItem, Batch, TextItem, TurnInput
from lash.model.session.checkpoint import BRANCH_OPTION, FRAME_PREFIX, CheckpointDraft
from lash.model.session.commit import Commit, Unchanged
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node
from lash.model.session.session import ActivePath, FullGraph, SessionRead
from lash.model.value import JSON
from lash.runtime.turns.inbox import command_of, queued_batches
from lash.stores.session import Session
from lash.stores.storage import Storage

_TTL_MS: Final = 30_000
"""How long a switch may hold the session's lease: far longer than its two reads and its write take."""
_PAGE: Final = 100
"""How many nodes are read at first to find the message that a reply answers."""


class BranchPoint(NamedTuple):
    """Where the turn of a message starts a branch.

    The agent sees the conversation up to ``shown``, and the turn's first node follows ``parent``. If these differ, the
    parent is the message itself, which is in the graph already: the turn adds another reply to it.
    """

    shown: str | None
    parent: str | None

    @property
    def publishes_input(self) -> bool:
        """Whether the turn adds its message to the graph."""
        return self.shown == self.parent

    def option(self) -> dict[str, JSON]:
        """Return the turn option that carries the point in a message."""
        return {BRANCH_OPTION: {"shown": self.shown, "parent": self.parent}}


def branch_of(batch: Batch) -> BranchPoint | None:
    """Return where the turn of a batch starts a branch; None if it continues the active path."""
    payload = batch.payloads[0]
    point = payload.protocol_turn_options.get(BRANCH_OPTION) if isinstance(payload, TurnInput) else None
    if not isinstance(point, dict):
        return None
    return BranchPoint(_node_id(point.get("shown")), _node_id(point.get("parent")))


async def branch_instead_of(storage: Storage, session_id: str, message_id: str) -> BranchPoint:
    """Return where a message that replaces another one of the user starts its branch: where that one stands."""
    node = await storage.session(session_id).node(message_id)
    if node is None:
        raise NodeNotFound(session_id, message_id)
    if _user_message(node) is None:
        raise InvalidInput(f"expected a message of the user, got node {message_id!r} of kind {node.kind}")
    return BranchPoint(node.parent_node_id, node.parent_node_id)


async def again(session: Session, message_id: str | None) -> tuple[TurnInput, BranchPoint]:
    """Return the input that asks for another reply to the last message of the user on the path to a node."""
    size: int | None = _PAGE
    while True:
        read = await session.load(ActivePath(leaf_node_id=message_id, last=size))
        nodes = () if read is None else read.graph.nodes
        if not nodes and message_id is not None:
            raise NodeNotFound(session.session_id, message_id)
        for node in reversed(nodes):
            message = _user_message(node)
            if message is not None:
                return _input_of(message), BranchPoint(node.parent_node_id, node.node_id)
        if size is None or len(nodes) < size:
            raise InvalidInput(f"session {session.session_id!r} has no message of the user to answer again")
        size = None


async def alternatives(session: Session, message_id: str) -> tuple[Message, ...]:
    """Return the messages that stand at the same place of the graph as one of them, the earliest first."""
    nodes = await _graph(session)
    parent = _find(session, nodes, message_id).parent_node_id
    beside = (node.entry for node in nodes if node.parent_node_id == parent)
    return tuple(entry.message for entry in beside if isinstance(entry, MessageEntry))


async def switch(storage: Storage, session_id: str, message_id: str) -> None:
    """Make the branch that a message is on the active path, up to the last node that was added to it."""
    session = storage.session(session_id)
    leaf = _end_below(await _graph(session), message_id, session)
    claimed = await storage.leases.claim(session_id, current_owner(), ttl_ms=_TTL_MS)
    if isinstance(claimed, Busy):
        raise SessionBusy(session_id)
    fence = claimed.lease.fence
    try:
        if await _has_started(storage, session_id):
            raise SessionBusy(session_id)
        read = await session.load(ActivePath(last=1))
        if read is not None and read.head.leaf_node_id != leaf:
            await session.commit(_move_leaf(read, leaf, fence))
    finally:
        await storage.leases.release(fence)


async def _has_started(storage: Storage, session_id: str) -> bool:
    """Return whether a turn of the session is between its first attempt and its commit."""
    return any([batch.attempts and command_of(batch) is None async for batch in queued_batches(storage, session_id)])


def _move_leaf(read: SessionRead, leaf_node_id: str, fence: LeaseFence) -> Commit:
    manifest = read.checkpoint.manifest
    components = {name: ref for name, ref in manifest.components.items() if not name.startswith(FRAME_PREFIX)}
    return Commit(
        session_id=read.head.session_id,
        expected_revision=read.head.revision,
        fence=fence,
        config=read.head.config,
        frames=read.frames,
        current_frame_id=read.head.current_frame_id,
        graph=Unchanged(leaf_node_id=leaf_node_id),
        checkpoint=CheckpointDraft(
            turn_state=manifest.turn_state,
            plugin_snapshot_revision=manifest.plugin_snapshot_revision,
            components=components,
        ),
    )


def _end_below(nodes: Sequence[Node], message_id: str, session: Session) -> str:
    """Return the node below a message that was added last; parents come before their children."""
    below = {_find(session, nodes, message_id).node_id}
    end = message_id
    for node in nodes:
        if node.parent_node_id in below:
            below.add(node.node_id)
            end = node.node_id
    return end


def _find(session: Session, nodes: Sequence[Node], node_id: str) -> Node:
    for node in nodes:
        if node.node_id == node_id:
            return node
    raise NodeNotFound(session.session_id, node_id)


async def _graph(session: Session) -> tuple[Node, ...]:
    read = await session.load(FullGraph())
    return () if read is None else read.graph.nodes


def _user_message(node: Node) -> Message | None:
    entry = node.entry
    return entry.message if isinstance(entry, MessageEntry) and entry.message.role is Role.USER else None


def _input_of(message: Message) -> TurnInput:
    items = (
        TextItem(text=part.content) if part.attachment is None else AttachmentItem(attachment=part.attachment)
        for part in message.parts
    )
    return TurnInput(items=tuple(items))


def _node_id(value: JSON) -> str | None:
    return None if value is None else str(value)
