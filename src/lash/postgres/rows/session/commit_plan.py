"""Commits that are planned and ready to be written, alone or together with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from lash.model.lease import LeaseFence
from lash.plan.session.commit import Apply, Checkpoints, PreparedCommit
from lash.plan.session.component import Replacement, replacements
from lash.plan.session.node import PlacedNode
from lash.postgres.cache import KnownCheckpoint

MOST_ALONE: Final = 256
"""How many nodes the statement for one commit takes at most; with more of them, its start is not what costs."""


class PlannedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a commit, and what of its statement it needs."""

    prepared: PreparedCommit
    decision: Apply
    replacements: tuple[Replacement, ...] | None
    """The components that get new bytes; None if more changes of them, of frames or of earlier checkpoints."""
    may_go_alone: bool
    """Whether the statement for one commit can write it, if no other shares it."""

    @property
    def session_key(self) -> int:
        return self.decision.head.session_key

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice is harmless: the guard refuses a turn that has its commit, the plan finds that."""
        return self.prepared.commit.turn_id is not None

    @property
    def has_more(self) -> bool:
        """Whether it begins a segment, names attachments, or changes more than the bytes of the one checkpoint."""
        return bool(self.replacements is None or self.decision.placement.segments or self.prepared.commit.attachments)

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


def planned_commit(prepared: PreparedCommit, decision: Apply, before: KnownCheckpoint | None) -> PlannedCommit:
    """Return what was decided about a commit to a session of which this is known."""
    if before is None or prepared.leaves is Checkpoints.ANY:
        return PlannedCommit(prepared=prepared, decision=decision, replacements=None, may_go_alone=False)
    return PlannedCommit(
        prepared=prepared,
        decision=decision,
        replacements=replacements(before.components, prepared.components, prepared.blobs),
        may_go_alone=not before.inherits
        and _is_run(decision.placement.nodes)
        and len(prepared.usage) == len(prepared.usage_totals),
    )


def _is_run(nodes: Sequence[PlacedNode]) -> bool:
    """Say whether they are few and each follows the one before it; they then lie on one segment, if they begin none."""
    if len(nodes) > MOST_ALONE:
        return False
    return [each.node.parent_node_id for each in nodes[1:]] == [each.node.node_id for each in nodes[:-1]]


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


def replacement_columns(commits: Iterable[PlannedCommit]) -> list[list[object]]:
    """Turn the components that get new bytes into the arrays that ``unnest`` takes."""
    return columns(((each.replaced, *each.blob) for commit in commits for each in commit.replacements or ()), 5)


def columns(rows: Iterable[Iterable[object]], width: int) -> list[list[object]]:
    """Turn rows into the arrays that ``unnest`` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def fence_values(fence: LeaseFence | None) -> tuple[str, str, str, int] | None:
    """Return what proves a lease, in the order in which the statements take it."""
    return None if fence is None else (fence.owner_id, fence.incarnation_id, fence.token, fence.fencing)
