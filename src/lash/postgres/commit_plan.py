"""Commits that are planned and ready to be written, alone or together with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lash.model.lease import LeaseFence
from lash.plan.commit import Apply, Checkpoints, PreparedCommit
from lash.plan.component import Replacement, replacements
from lash.plan.node import PlacedNode
from lash.postgres.heads import Left


class PlannedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a commit, and what of its statement it needs."""

    prepared: PreparedCommit
    decision: Apply
    has_components: bool
    """Whether it has components, or the checkpoint before it may have."""
    has_more: bool
    """Whether it begins a segment, names attachments, or has to do with frames or more than one checkpoint."""
    replacements: tuple[Replacement, ...] | None
    """What changes of the components, if the shorter statement for one commit can write it."""

    @property
    def session_key(self) -> int:
        return self.decision.head.session_key

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice is harmless: the guard refuses a turn that has its commit, the plan finds that."""
        return self.prepared.commit.turn_id is not None

    @property
    def has_claims(self) -> bool:
        """Whether it shows a fence, gives back a lease or consumes batches."""
        commit = self.prepared.commit
        return commit.fence is not None or commit.release is not None or bool(commit.completions)

    @property
    def claims(self) -> list[tuple[str, str, str]]:
        """The token, the id and the batch of everything that it consumes."""
        return [
            (each.token, each.claim_id, name) for each in self.prepared.commit.completions for name in each.batch_ids
        ]


def planned_commit(prepared: PreparedCommit, decision: Apply, before: Left | None) -> PlannedCommit:
    """Return what was decided about a commit to a session of which this is known."""
    is_usual = before is not None and prepared.leaves is not Checkpoints.ANY
    has_more = not is_usual or bool(decision.placement.segments or prepared.commit.attachments)
    return PlannedCommit(
        prepared=prepared,
        decision=decision,
        has_components=bool(prepared.components) or before is None or bool(before.components),
        has_more=has_more,
        replacements=None if before is None or has_more else _replacements(prepared, decision.placement.nodes, before),
    )


def _replacements(
    prepared: PreparedCommit, nodes: Sequence[PlacedNode], before: Left
) -> tuple[Replacement, ...] | None:
    parents, ids = ([each.node.parent_node_id for each in nodes[1:]], [each.node.node_id for each in nodes[:-1]])
    if before.inherits or parents != ids or len(prepared.usage) != len(prepared.usage_totals):
        return None
    return replacements(before.components, prepared.components, prepared.blobs)


def node_columns(nodes: Iterable[PlacedNode]) -> list[list[object]]:
    """Turn nodes into the arrays that ``unnest`` takes."""
    rows = list(nodes)
    encoded = [placed.node for placed in rows]
    return [
        [placed.segment for placed in rows],
        [placed.depth for placed in rows],
        [placed.seq for placed in rows],
        [node.node_id for node in encoded],
        [node.parent_node_id for node in encoded],
        [node.user_text is not None for node in encoded],
        [node.stored_body for node in encoded],
        [node.packed for node in encoded],
    ]


def columns(rows: Iterable[Iterable[object]], width: int) -> list[list[object]]:
    """Turn rows into the arrays that ``unnest`` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def fence_values(fence: LeaseFence | None) -> tuple[str, str, str, int] | None:
    """Return what proves a lease, in the order in which the statements take it."""
    return None if fence is None else (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)
