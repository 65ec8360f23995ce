"""What a reader finds in the database of its framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from msgspec import UNSET, UnsetType

from lash.adapters.importing.source import Row, Source
from lash.model.record import RecordPut
from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.node import Node
from lash.model.session.session import Retention
from lash.model.value import JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """A row that has no counterpart in lash, or cannot be read. It is kept as it is."""

    table: str
    row: Row
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPart:
    """A part of what is found, at most some hundred nodes and records and some megabytes; it is written whole.

    ``nodes`` have their final ids and parents, parents first, and none comes twice. The leaf is the last of them,
    unless ``leaf_node_id`` names another, here or in a later part. ``records`` belong to the session or to the storage.
    ``counts`` says how many things of the framework it holds, by noun in the singular. A ``checkpoint`` replaces the
    one of the session, as in `Commit`. ``size`` is what its nodes and its checkpoint take as JSON, in bytes.
    """

    nodes: Sequence[Node] = ()
    records: Sequence[RecordPut] = ()
    raw: Sequence[RawRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    checkpoint: CheckpointDraft | None = None
    leaf_node_id: str | None | UnsetType = UNSET
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSession:
    """A session of the framework. ``name`` is its id there, and ``session_id`` that of the lash session.

    The adapter finds it by what it would have written itself: ``title`` is the name of the lash session.
    """

    name: str
    session_id: str
    pieces: AsyncIterator[FoundPart]
    title: str | None = None
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: JSONObject = field(default_factory=dict)
    retention: Retention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """Records of the storage, and rows that belong to no session. A record that exists is never overwritten."""

    name: str
    pieces: AsyncIterator[FoundPart]


Found: TypeAlias = FoundSession | FoundRecords


class FrameworkReader(Protocol):
    """Reads the tables of one framework."""

    @property
    def framework(self) -> str:
        """The name of the framework, as in ``lash import FRAMEWORK``."""
        ...

    @property
    def tables(self) -> frozenset[str]:
        """The names that the framework gives its tables, for the error about a database without any."""
        ...

    async def recognised(self, source: Source) -> frozenset[str]:
        """Return the tables that are the framework's. The report lists the other tables of the database.

        Raises InvalidInput if they cannot be read, because a table lacks a column or has an unknown version.
        """
        ...

    async def count(self, source: Source) -> int:
        """Return how much `found` yields, for the progress."""
        ...

    def found(self, source: Source) -> AsyncIterator[Found]:
        """Return the sessions and records, in a stable order. The pieces of each are read before the next one."""
        ...
