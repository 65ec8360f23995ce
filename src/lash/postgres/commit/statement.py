"""Which statement writes a commit.

::

    planned commits, sent together
      │
      ├─ is each an ordinary turn? ── no ──► commit_apply   any kind of commit, up to MAX_TOGETHER
      │         yes
      ├─ more than one? ───────────── yes ─► commit_turns   the same, without the steps that ordinary turns need not
      │         no
      └─ does it need one session and  no ─► commit_turns
         one run of nodes only?  ──── yes ─► commit_alone   parameters instead of JSON records;
                                             commit_alone_leased with a fence, a release or claims;
                                             commit_turns if a text contains the separator of texts

A commit is an *ordinary turn* if this storage wrote the one before it, both leave one checkpoint without frames, only
bytes of components change, and it brings no new segment, no attachments and no records. Nearly every commit of
an agent is.

Every step of a statement costs the server 10 to 20 µs, whether it has rows to write or not: ``commit_apply`` has 38,
``commit_turns`` 22, ``commit_alone_leased`` 18 and ``commit_alone`` 10. All of them leave the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lash.plan.session.component import Replacement, replacements
from lash.plan.session.node import PlacedNode
from lash.postgres.arguments import NotSeparable
from lash.postgres.commit.alone import arguments_alone, lease_arguments
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.record import arguments_of_any
from lash.postgres.commit.together import arguments_in_place

MOST_ALONE: Final = 256
"""How many nodes ``commit_alone`` takes at most; with more, the nodes cost more than the steps that are saved."""


def choose_statement(commits: Sequence[PlannedCommit]) -> tuple[str, tuple[object, ...]]:
    """Return the statement that writes all of these commits, and its arguments."""
    replaced = [each for each in map(_replaced_if_ordinary, commits) if each is not None]
    if len(replaced) < len(commits):
        return "commit_apply", arguments_of_any(commits)
    if len(commits) == 1 and _may_go_alone(commits[0]):
        with suppress(NotSeparable):
            arguments, leased = arguments_alone(commits[0], replaced[0]), lease_arguments(commits[0])
            return ("commit_alone", arguments) if leased is None else ("commit_alone_leased", (*arguments, *leased))
    return "commit_turns", arguments_in_place(commits, replaced)


def _replaced_if_ordinary(planned: PlannedCommit) -> tuple[Replacement, ...] | None:
    """Return the components that get new bytes if the commit is an ordinary turn; None if it is not."""
    if planned.decision.placement.segments or planned.prepared.attachments or planned.prepared.records:
        return None
    if planned.before is None or not planned.prepared.leaves_one_checkpoint:
        return None
    if planned.before.components == planned.prepared.components:
        return ()
    return replacements(planned.before.components, planned.prepared.components, planned.prepared.blobs)


def _may_go_alone(planned: PlannedCommit) -> bool:
    """Return whether ``commit_alone`` can write an ordinary turn."""
    prepared, before = planned.prepared, planned.before
    # In a fork, new node ids must differ from those of inherited nodes too.
    if before is None or before.inherits or not _is_run(planned.decision.placement.nodes):
        return False
    # Two rows of one source and model must be summed before they are added to the total.
    return len(prepared.usage) == len(prepared.usage_totals)


def _is_run(nodes: Sequence[PlacedNode]) -> bool:
    """Return whether they are few and each follows the one before it, so that they lie on one segment."""
    if len(nodes) > MOST_ALONE:
        return False
    return [each.node.parent_node_id for each in nodes[1:]] == [each.node.node_id for each in nodes[:-1]]
