"""Erasing nodes: their content goes, their place in the graph stays.

An erasure publishes a revision of its own, so that no reader and no cache takes the old content for the current one.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

import msgspec

from lash.base.limits import MAX_INTEGER, check_identifiers
from lash.errors import InvalidInput, LeaseLost
from lash.model.lease import LeaseFence, ResourceKind, session_resource
from lash.model.session.node import ErasedEntry
from lash.model.session.session import Retention
from lash.plan.lease import LeaseRow, check_fence, require_fence
from lash.plan.session.meta import kept_of
from lash.plan.session.node import encode_body
from lash.plan.session.session import HeldNode, require_removable

LONGEST_ERASED: Final = 128
"""The bytes that the body of an erased node has at most, before it is sealed."""


class PreparedErasure(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request to erase nodes."""

    session_id: str
    node_ids: tuple[str, ...]
    fence: LeaseFence | None
    retention: Retention


class ErasableNode(msgspec.Struct, frozen=True, array_like=True):
    """A live node that is not erased yet."""

    node_id: str
    user_message: bool


class ErasureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The stored facts that an erasure depends on."""

    now_ms: int
    revision: int
    keep: int | None
    """The retention of the session, as in its head."""
    lease: LeaseRow
    held: list[HeldNode]
    """The nodes that are in use."""
    found: list[ErasableNode]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes to erase, and the revision to publish."""

    node_ids: list[str]
    body: str
    user_messages: int
    """How many of the nodes are user messages."""
    revision: int
    retention_floor: int
    """Checkpoints of lower revisions are dropped."""


def prepare_erasure(
    session_id: str, node_ids: Collection[str], fence: LeaseFence | None, retention: Retention
) -> PreparedErasure:
    """Check a request to erase nodes, or raise InvalidInput."""
    if fence is not None:
        check_fence("fence", fence, ResourceKind.SESSION)
    wanted = check_identifiers("node_ids", node_ids)
    return PreparedErasure(session_id=session_id, node_ids=wanted, fence=fence, retention=retention)


def plan_erasure(prepared: PreparedErasure, facts: ErasureFacts) -> Erasure | None:
    """Decide which nodes are erased; None if there is nothing to erase. Raises LeaseLost or InvalidInput."""
    if prepared.fence is not None:
        resource = session_resource(prepared.session_id)
        if prepared.fence.resource != resource:
            raise LeaseLost(resource, f"the fence is for {prepared.fence.resource}")
        require_fence(facts.lease, prepared.fence, facts.now_ms)
    # A node on the active path keeps its place, so it can be erased. Others may still show a node that is shared.
    require_removable(prepared.session_id, [node for node in facts.held if node.holder != "path"])
    if not facts.found:
        return None
    if facts.revision == MAX_INTEGER:
        raise InvalidInput("the revision counter of this session is exhausted")
    revision, keep = facts.revision + 1, kept_of(facts.keep, prepared.retention)
    return Erasure(
        node_ids=[node.node_id for node in facts.found],
        body=encode_body(datetime.fromtimestamp(facts.now_ms / 1000, UTC), ErasedEntry()),
        user_messages=sum(node.user_message for node in facts.found),
        revision=revision,
        retention_floor=0 if keep is None else revision - keep + 1,
    )
