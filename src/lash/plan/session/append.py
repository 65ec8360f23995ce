"""Appends: nodes below the current leaf, by callers that know neither revision nor leaf.

An append changes the graph and nothing else: configuration, frames, checkpoint and ledger stay as they are. It is one
revision. On a session without a commit it is the first one, with the default configuration and an empty checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from lash.base.codec import encode
from lash.base.limits import check_identifier
from lash.errors import InvalidInput, NodeConflict
from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.commit import AppendResult
from lash.model.session.node import Node
from lash.model.session.session import SessionConfig
from lash.plan.session.checkpoint import EncodedCheckpoint, encode_checkpoint
from lash.plan.session.commit import CommitRules, check_budget, head_after, is_small
from lash.plan.session.node import EncodedNode, Placement, StoredNode, encode_nodes, place_appended
from lash.plan.session.session import HeadRow
from lash.plan.session.turn import TurnRow, append_hash, replay


class PreparedAppend(msgspec.Struct, frozen=True, kw_only=True):
    """An append as rows: everything that can be computed without the database."""

    session_id: str
    turn_id: str | None
    append_hash: str | None
    nodes: tuple[EncodedNode, ...]
    """Each follows the one before it; the first has no parent yet."""
    size: int
    """How many bytes it brings, before compression."""
    keep: int | None
    """How many checkpoints the session keeps; None for all of them."""

    @property
    def is_brief(self) -> bool:
        """Whether it is small enough to be written on the event loop."""
        return is_small(len(self.nodes), self.size)


class FirstHead(msgspec.Struct, frozen=True, kw_only=True):
    """What the head of a session becomes if its first commit is an append."""

    config: str
    checkpoint: EncodedCheckpoint


class AppendFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts that an append depends on."""

    head: HeadRow
    turn: TurnRow | None
    stored_nodes: dict[str, StoredNode]
    """Those of its nodes whose ids are taken."""


class ApplyAppend(msgspec.Struct, frozen=True, kw_only=True):
    """Write the nodes at these positions, and this head; ``before`` is the one that it replaces."""

    before: HeadRow
    head: HeadRow
    placement: Placement
    result: AppendResult


class ReplayAppend(msgspec.Struct, frozen=True, kw_only=True):
    """The append was written before: return its first result."""

    result: AppendResult


AppendDecision: TypeAlias = ApplyAppend | ReplayAppend


def prepare_append(
    nodes: Sequence[Node], session_id: str, turn_id: str | None, rules: CommitRules, *, often_read: bool = False
) -> PreparedAppend:
    """Check an append and turn it into rows, or raise InvalidInput. Does not read the database."""
    if not isinstance(nodes, list | tuple) or not nodes:
        raise InvalidInput("nodes must be a list or tuple of at least one Node")
    if turn_id is not None:
        check_identifier("turn_id", turn_id)
    encoded = encode_nodes(nodes, rules.compression, often_read=often_read)
    for index, node in enumerate(encoded):
        if node.parent_node_id is not None:
            raise InvalidInput(f"nodes[{index}].parent_node_id must be None: an append sets the parents itself")
    size = sum(node.size for node in encoded)
    check_budget(len(encoded), size, rules.budget)
    return PreparedAppend(
        session_id=session_id,
        turn_id=turn_id,
        append_hash=None if turn_id is None else append_hash(nodes),
        nodes=_chained(encoded, None),
        size=size,
        keep=rules.retention.keep,
    )


def plan_append(prepared: PreparedAppend, facts: AppendFacts) -> AppendDecision:
    """Decide about an append to an existing session, or raise the error of the first check that fails."""
    session_id, before = prepared.session_id, facts.head
    if facts.turn is not None and prepared.turn_id is not None and prepared.append_hash is not None:
        result = replay(session_id, prepared.turn_id, facts.turn, prepared.append_hash, AppendResult)
        return ReplayAppend(result=result)
    for node in prepared.nodes:
        if node.node_id in facts.stored_nodes:
            raise NodeConflict(session_id, node.node_id, "exists already; each append needs new ids")
    leaf = before.leaf_as_stored_node()
    placement = place_appended(
        session_id,
        _chained(prepared.nodes, before.leaf_node_id),
        {} if leaf is None else {leaf.node_id: leaf},
        segment_count=before.segment_count,
        node_seq=before.node_seq,
    )
    last = prepared.nodes[-1].node_id
    head = head_after(before, placement, last, placement.positions[last])
    result = AppendResult(revision=head.revision, parent_node_id=before.leaf_node_id)
    return ApplyAppend(before=before, head=head, placement=placement, result=result)


@lru_cache(maxsize=1)
def first_head() -> FirstHead:
    """Return what an append gives a session that has no commit yet."""
    return FirstHead(
        config=encode(SessionConfig(), SessionConfig, "config"),
        checkpoint=encode_checkpoint(CheckpointDraft(), CommitRules().compression),
    )


def _chained(nodes: Sequence[EncodedNode], parent: str | None) -> tuple[EncodedNode, ...]:
    """Return the nodes, each below the one before it and the first below the parent."""
    parents = (parent, *(node.node_id for node in nodes[:-1]))
    return tuple(node._replace(parent_node_id=above) for node, above in zip(nodes, parents, strict=True))
