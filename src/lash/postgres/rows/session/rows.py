"""The rows of those queries that answer several things at once, as one snapshot or one statement requires."""

from __future__ import annotations

import msgspec

from lash.plan.lease import LeaseRow
from lash.plan.queue.queue import HeldBatch
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
