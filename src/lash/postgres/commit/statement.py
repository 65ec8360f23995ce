"""Which statement writes a commit.

::

    planned commits that the writer sends now
        │
        ├─ one, and it is ordinary ──► commit_alone   parameters only, rows replaced in place
        │
        └─ several, or anything else ► commit_apply   up to MAX_TOGETHER commits of any kind, as JSON records

A commit is *ordinary* if this storage wrote the one before it and both leave one checkpoint without frames, its nodes
follow each other on one existing segment, and nothing is inherited or attached. Every turn of a running agent is. Each
step of a statement costs the server 10 to 20 µs whether it has rows to write or not, and ``commit_alone`` has half the
steps of ``commit_apply``; both leave the same rows behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lash.plan.session.node import PlacedNode
from lash.postgres.commit.alone import CommitAlone, arguments_alone
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.together import CommitTogether, arguments_together

MOST_ALONE: Final = 256
"""How many nodes ``commit_alone`` takes at most; with more, the steps are not what a commit costs."""


def choose_statement(commits: Sequence[PlannedCommit]) -> tuple[str, CommitAlone | CommitTogether]:
    """Return the statement that writes all of these commits, and its arguments."""
    if len(commits) == 1:
        replaced = commits[0].replaced
        if replaced is not None and _is_ordinary(commits[0]):
            return "commit_alone", arguments_alone(commits[0], replaced)
    return "commit_apply", arguments_together(commits)


def _is_ordinary(planned: PlannedCommit) -> bool:
    """Return whether ``commit_alone`` can write a commit that replaces its checkpoint in place."""
    prepared, placement, before = planned.prepared, planned.decision.placement, planned.before
    # In a fork, new node ids must be looked for among the inherited nodes too.
    if before is None or before.inherits:
        return False
    if placement.segments or prepared.attachments or not _is_run(placement.nodes):
        return False
    # Two rows of one source and model must be summed before they are added to the total.
    return len(prepared.usage) == len(prepared.usage_totals)


def _is_run(nodes: Sequence[PlacedNode]) -> bool:
    """Return whether they are few and each follows the one before it, so that they lie on one segment."""
    if len(nodes) > MOST_ALONE:
        return False
    return [each.node.parent_node_id for each in nodes[1:]] == [each.node.node_id for each in nodes[:-1]]
