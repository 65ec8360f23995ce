"""The head of a session as a commit reads it, with all other facts that one query can find."""

from __future__ import annotations

from typing import Final

from lash.errors import CorruptData
from lash.model.queue import ClaimCompletion
from lash.plan.lease import LeaseRow
from lash.plan.session.commit import PreparedCommit
from lash.plan.session.session import HeadRow
from lash.sqlite.engine.database import Transaction
from lash.sqlite.rows.session.lookup import missing

FEW_NODES: Final = 4
"""The query of the head looks for the ids of so many new nodes: most turns have two."""


class CommitHead(HeadRow, frozen=True, array_like=True):
    """The head, and which other rows exist, so that a commit reads and deletes only those; most sessions have few."""

    inherits: bool
    turn: bool
    frames: bool
    components: bool
    oldest_checkpoint: int | None
    """The first of the checkpoints that this commit no longer keeps."""
    old_components: bool
    effects: bool
    taken: bool
    """Whether the id of one of the first new nodes is taken by a node of the session's own."""
    agent: str | None
    fencing: int | None
    owner_id: str | None
    incarnation_id: str | None
    process: str | None
    token: str | None
    claimed_at_ms: int | None
    expires_at_ms: int | None
    held_batch_id: str | None
    held_is_wake: bool
    held_source_key: str | None

    @property
    def lease(self) -> LeaseRow:
        if self.fencing is None or self.claimed_at_ms is None or self.expires_at_ms is None:
            raise CorruptData(f"a session has no lease row (key {self.session_key})")
        holder = self.owner_id, self.incarnation_id, self.process, self.token
        return LeaseRow(self.fencing, *holder, self.claimed_at_ms, self.expires_at_ms)


def find_commit_head(transaction: Transaction, prepared: PreparedCommit) -> list[CommitHead]:
    """Return the head: one row for each batch that the only claim holds, one row without such a batch."""
    session_id, claim = prepared.commit.session_id, only_claim(prepared)
    new = [node.node_id for node in prepared.nodes[:FEW_NODES]]
    node_1, node_2, node_3, node_4 = new + [None] * (FEW_NODES - len(new))
    rows = transaction.all(
        CommitHead,
        "session_for_commit",
        session_id=session_id,
        turn_id=prepared.commit.turn_id,
        floor=prepared.retention_floor,
        revision=prepared.revision,
        scope_id=prepared.scope_id,
        node_1=node_1,
        node_2=node_2,
        node_3=node_3,
        node_4=node_4,
        claim_token=None if claim is None else claim.token,
        claim_id=None if claim is None else claim.claim_id,
    )
    if not rows:
        raise missing(transaction, session_id)
    return rows


def only_claim(prepared: PreparedCommit) -> ClaimCompletion | None:
    """Return the claim that the commit completes, unless it completes several."""
    completions = prepared.commit.completions
    return completions[0] if len(completions) == 1 else None
