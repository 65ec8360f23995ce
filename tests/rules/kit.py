"""Values that the tests of `lash.plan` are built from, made without the code under test."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

from lash.base.compression import Compression
from lash.model.lease import LeaseOwner
from lash.model.process.event import EventType, ProcessEvent
from lash.model.process.process import ExternalInput, Registration
from lash.model.session.commit import Append, Commit, CommitBudget
from lash.model.session.message import Message, Role
from lash.model.session.node import MessageEntry, Node, PluginEntry
from lash.model.session.session import Retention
from lash.model.value import JSON
from lash.plan.lease import LeaseRow
from lash.plan.session.commit import CommitFacts, CommitRules
from lash.plan.session.node import EncodedNode, StoredNode
from lash.plan.session.session import HeadRow

SESSION = "session-1"
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
FREE_LEASE = LeaseRow(0, None, None, None, None, 0, 0)
EMPTY_HEAD = HeadRow(1, 0, False, None, None, None, False, 0, 0, 0, "", 0, None)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def said(node_id: str, parent: str | None = None, text: str = "hello", role: Role = Role.USER) -> Node:
    """Return a message node."""
    message = Message.of_text(f"m-{node_id}", role, text)
    return Node(node_id=node_id, parent_node_id=parent, timestamp=NOON, entry=MessageEntry(message=message))


def noted(node_id: str, parent: str | None = None, body: object = None) -> Node:
    """Return a plugin node."""
    entry = PluginEntry(plugin_type="note", body=body)  # type: ignore[arg-type]
    return Node(node_id=node_id, parent_node_id=parent, timestamp=NOON, entry=entry)


def bare(node_id: str, parent: str | None = None, body: str = "{}") -> EncodedNode:
    """Return a node of which only the position matters."""
    return EncodedNode(node_id, parent, body, None, len(body))


def stored(
    node_id: str,
    segment: int,
    depth: int,
    *,
    parent: str | None = None,
    tip: bool = True,
    tombstoned: bool = False,
    body: str = "{}",
) -> StoredNode:
    return StoredNode(node_id, parent, segment, depth, tip, tombstoned, body)


def appending(*nodes: Node, expected_revision: int = 0, turn_id: str | None = None) -> Commit:
    return Commit(session_id=SESSION, expected_revision=expected_revision, turn_id=turn_id, graph=Append(nodes=nodes))


def rules(
    *, compression: Compression = Compression.LOW_LATENCY, budget: CommitBudget | None = None, keep: int | None = 1
) -> CommitRules:
    return CommitRules(compression=compression, budget=budget or CommitBudget(), retention=Retention(keep=keep))


def facts(
    head: HeadRow = EMPTY_HEAD, *stored_nodes: StoredNode, lease: LeaseRow = FREE_LEASE, now_ms: int = 0
) -> CommitFacts:
    """Return the facts of a session in which neither turn nor ref is missing."""
    return CommitFacts(
        head=head,
        turn=None,
        held_batches={},
        lease=lease,
        stored_nodes={node.node_id: node for node in stored_nodes},
        missing_refs=frozenset(),
        missing_attachments=frozenset(),
        record_versions={},
        now_ms=now_ms,
    )


PROCESS = "process-1"
OWNER = LeaseOwner(owner_id="worker", incarnation_id="first")


def canonical_json(value: object) -> bytes:
    """Return the canonical text of plain JSON, made without msgspec."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def registered(*event_types: EventType, process_id: str = PROCESS, **fields: object) -> Registration:
    """Return a registration of external work that declares these types."""
    given = {"process_id": process_id, "input": ExternalInput(), "event_types": event_types, **fields}
    return Registration(**given)  # type: ignore[arg-type]


def happened(
    event_type: str, payload: JSON = None, *, sequence: int = 1, replay_key: str | None = None, now_ms: int = 0
) -> ProcessEvent:
    """Return a fact in the log of the process."""
    return ProcessEvent(
        process_id=PROCESS,
        sequence=sequence,
        event_type=event_type,
        payload=payload,
        replay_key=replay_key,
        occurred_at_ms=now_ms,
    )
