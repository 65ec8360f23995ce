"""The rows of those queries that answer several things at once, as one snapshot or one statement requires."""

from __future__ import annotations

import msgspec

from lash.plan.lease import LeaseRow
from lash.plan.queue.dead_letter import DeadLetterRow
from lash.plan.queue.queue import BatchRow, CandidateRow, HeldBatch, QueueFacts, SourceKeyRow
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow
from lash.plan.session.frame import FrameRow
from lash.plan.session.node import PathRow, StoredNode
from lash.plan.session.session import HeadRow, ReadRow
from lash.plan.session.turn import TurnRow
from lash.plan.session.usage import UsageRow


class ReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The head of a session, for readers and for writers."""

    read: ReadRow
    head: HeadRow


class LoadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One revision of a session."""

    read: ReadRow
    head: HeadRow
    inherited: list[PathRow]
    nodes: list[PathRow]
    frames: list[FrameRow]
    checkpoint: CheckpointRow | None
    components: list[ComponentRow]
    totals: list[UsageRow]


class NodeAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One node, or none."""

    session_key: int
    nodes: list[PathRow]


class CheckpointAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of one revision, if it is kept."""

    session_key: int
    checkpoint: CheckpointRow | None
    components: list[ComponentRow]


class CommitAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A commit that was written, and whether its session sees nodes of another one."""

    session_key: int
    inherits: bool


class FactsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What a plan must know about a commit."""

    now_ms: int
    head: HeadRow
    turn: TurnRow | None
    lease: LeaseRow
    nodes: list[StoredNode]
    known_refs: list[str]
    held: list[HeldBatch]
    known_attachments: list[str]
    is_inherited: bool


class LockAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A session that is held for its deletion, and its last fencing number."""

    session_key: int
    fencing: int


class TiesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What else must be taken apart before a session is deleted."""

    has_declarations: bool
    has_processes: bool


class BuriedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """How the graph of a deleted session hangs together with others."""

    has_heirs: bool
    owner_keys: list[int]


class LeaseAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The time and a lease row."""

    now_ms: int
    row: LeaseRow


class AcquireAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The time, a lease row as it was, and as it is if it was taken."""

    now_ms: int
    before: LeaseRow
    taken: LeaseRow | None


class KnownKeyAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a source key, and its batch if it is still queued."""

    key: SourceKeyRow
    batches: list[BatchRow]


class QueueAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The time, the lease and the head of a queue."""

    session_key: int
    now_ms: int
    lease: LeaseRow
    candidates: list[CandidateRow]
    command_seq: int | None
    any_late: bool
    any_claimed: bool
    next_available_at_ms: int | None

    @property
    def any_due(self) -> bool:
        """Whether delayed work must be made ready before the head means anything."""
        return self.next_available_at_ms is not None and self.next_available_at_ms <= self.now_ms

    @property
    def facts(self) -> QueueFacts:
        return QueueFacts(
            candidates=self.candidates,
            command_seq=self.command_seq,
            any_late=self.any_late,
            any_claimed=self.any_claimed,
            next_available_at_ms=self.next_available_at_ms,
        )


class StampAnswer(msgspec.Struct, frozen=True, array_like=True):
    """When a claim was made, and what it holds."""

    now_ms: int
    batches: list[BatchRow]


class BeginAnswer(msgspec.Struct, frozen=True, array_like=True):
    """When a turn was begun, with what, at which revision, and whether an earlier attempt has left records."""

    now_ms: int
    batches: list[BatchRow]
    revision: int
    recorded: bool


class BatchesAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some batches of a session that exists."""

    session_key: int
    batches: list[BatchRow]


class HeldAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The ids of the batches that a claim held."""

    held: list[str]


class DeadLettersAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Some dead letters of a session that exists."""

    session_key: int
    letters: list[DeadLetterRow]
