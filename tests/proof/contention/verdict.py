"""The input of the checker, and the violations that it reports."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tests.proof.contention.history import Act, Operation, State

A = TypeVar("A", bound=Act)


class Law(enum.StrEnum):
    """The laws."""

    REGISTER = "the head of a session is one register that is compared and set"
    CHAIN = "history is one line of exactly the commits that were made, each whole"
    TURN = "a turn is committed once"
    CONSUMED_ONCE = "an input is consumed once"
    NOTHING_LOST = "an input that was acknowledged is consumed or still queued"
    NOTHING_MADE_UP = "what is there was asked for"
    ORDER = "what was acknowledged before another began comes before it"
    FENCES_GROW = "every acquisition has a larger number than all before it"
    STALE_FENCE = "who lost the lease changes nothing"
    SET_ONCE = "a value that is set once is the same for all callers"
    COUNTER = "a record is one register that is compared and set, and no increment is lost"
    LABELS = "a session has the owner and the labels of one edit, and lists find it by exactly these"
    LOG = "an event is in the log once, under the number that was answered"


@dataclass(frozen=True)
class Violation:
    """A broken law, and the session, process or key concerned."""

    law: Law
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.law.name} {self.subject}: {self.text}"


@dataclass(frozen=True)
class StoredNode:
    """A live node; ``key`` is the input that it was made from."""

    node_id: str
    parent: str | None
    key: str | None = None


@dataclass(frozen=True)
class StoredSession:
    """The rows of one session. ``nodes`` are in insertion order, ``queued`` are the keys in the queue."""

    revision: int
    leaf: str | None
    nodes: tuple[StoredNode, ...] = ()
    turns: Mapping[str, int] = field(default_factory=dict)
    queued: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    """The keys of dead letters."""

    @property
    def consumed(self) -> list[str]:
        return [node.key for node in self.nodes if node.key is not None]


@dataclass(frozen=True)
class StoredLabels:
    """The owner, under the empty key, and the labels of a session: as it has them, and as lists find it."""

    held: Mapping[str, str] = field(default_factory=dict)
    found_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stored:
    """The rows stored in the end. A log has None for an event that no history contains."""

    sessions: Mapping[str, StoredSession] = field(default_factory=dict)
    cells: Mapping[str, str] = field(default_factory=dict)
    logs: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    fences: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The version and the value of each record."""
    labels: Mapping[str, StoredLabels] = field(default_factory=dict)


@dataclass(frozen=True)
class TypedOperation(Generic[A]):
    """An operation and its act, by type."""

    operation: Operation
    act: A

    @property
    def is_ok(self) -> bool:
        return self.operation.state is State.OK

    @property
    def may_have_happened(self) -> bool:
        return self.operation.state is not State.FAIL
