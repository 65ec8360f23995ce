"""Forks: a session that continues from a node of another one.

A fork inherits a path: runs of nodes on the segments of the sessions that own them. The fork sees them on its own
segment 0, and its first own node goes onto that segment, one deeper than the last inherited one.

Runs are kept as lists from the leaf to the root. A fork of a fork continues the list of its source where their paths
part, so that it writes a run for each segment of its source on the path, and no run of earlier sessions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.base.limits import check_identifier
from lash.errors import InvalidInput, NodeNotFound, SessionExists
from lash.model.session.created import CreatedSession
from lash.model.session.session import ForkRelation, SessionMeta
from lash.plan.session.meta import EncodedMeta, GivenMeta, MetaRow, decode_meta, encode_meta, new_meta


class InheritedRun(msgspec.Struct, frozen=True, array_like=True):
    """Nodes on one segment of the session that owns them: those deeper than ``floor``, up to ``ceiling``."""

    owner_key: int
    segment: int
    floor: int
    ceiling: int


class StoredRun(msgspec.Struct, frozen=True, array_like=True):
    """A run of the list that a session inherits."""

    run_key: int
    owner_key: int
    segment: int
    floor: int
    ceiling: int

    def is_same(self, run: InheritedRun) -> bool:
        """Return whether it has the same nodes."""
        return (self.owner_key, self.segment, self.floor, self.ceiling) == msgspec.structs.astuple(run)


class SourceRow(msgspec.Struct, frozen=True, array_like=True):
    """The columns of its source that a fork needs."""

    session_key: int
    committed: bool
    leaf_node_id: str | None


class PreparedFork(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for a fork; ``node_id`` is None for the leaf of the source."""

    source_session_id: str
    node_id: str | None
    meta: SessionMeta

    def start_node(self, source: SourceRow) -> str | None:
        """Return the node after which the fork starts; None for a source without nodes."""
        return source.leaf_node_id if self.node_id is None else self.node_id


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fork starts: the runs it inherits, and the node after which it continues."""

    encoded: EncodedMeta
    source_key: int
    committed: bool
    node_id: str | None
    leaf_depth: int | None
    shared_run: int | None
    """The run of the source's list that the new ones follow."""
    new_runs: tuple[InheritedRun, ...]
    """The runs to add, from the root."""

    @property
    def leaf_segment(self) -> int | None:
        return None if self.leaf_depth is None else 0


def prepare_fork(
    source_session_id: str,
    new_session_id: str,
    given: GivenMeta,
    *,
    node_id: str | None,
) -> PreparedFork:
    """Check the arguments of a fork, or raise InvalidInput. Does not read the database."""
    check_identifier("source_session_id", source_session_id)
    if check_identifier("new_session_id", new_session_id) == source_session_id:
        raise InvalidInput("a session cannot be a fork of itself: source_session_id and new_session_id are the same")
    if node_id is not None:
        check_identifier("node_id", node_id)
    relation = ForkRelation(source_session_id=source_session_id, node_id=node_id)
    meta = new_meta(new_session_id, msgspec.structs.replace(given, relation=relation))
    encode_meta(meta, new_session_id)
    return PreparedFork(source_session_id=source_session_id, node_id=node_id, meta=meta)


def existing_fork(prepared: PreparedFork, row: MetaRow) -> CreatedSession:
    """Return the session that has the new id if it is the same fork; raise SessionExists if it is another session."""
    meta = decode_meta(row)
    relation = meta.relation
    if (
        isinstance(relation, ForkRelation)
        and relation.source_session_id == prepared.source_session_id
        and prepared.node_id in (None, relation.node_id)
    ):
        return CreatedSession(meta=meta, revision=row.revision, created=False)
    raise SessionExists(prepared.meta.session_id)


def fork_point(
    prepared: PreparedFork, source: SourceRow, runs: Sequence[InheritedRun], inherited: Sequence[StoredRun]
) -> ForkPoint:
    """Decide where the fork starts, given the runs of the path to its node and the inherited runs of its source.

    Both come from the root. Raises NodeNotFound if the path is empty, because the node is unknown.
    """
    node_id = prepared.start_node(source)
    if node_id is not None and not runs:
        raise NodeNotFound(prepared.source_session_id, node_id)
    relation = ForkRelation(source_session_id=prepared.source_session_id, node_id=node_id)
    meta = msgspec.structs.replace(prepared.meta, relation=relation)
    shared = _shared(runs, inherited)
    return ForkPoint(
        encoded=encode_meta(meta, meta.session_id),
        source_key=source.session_key,
        committed=source.committed,
        node_id=node_id,
        leaf_depth=runs[-1].ceiling if runs else None,
        shared_run=inherited[shared - 1].run_key if shared else None,
        new_runs=tuple(runs[shared:]),
    )


def _shared(runs: Sequence[InheritedRun], inherited: Sequence[StoredRun]) -> int:
    """Return how many runs of the path, from the root, are the first ones of the list."""
    count = 0
    for run, stored in zip(runs, inherited, strict=False):
        if not stored.is_same(run):
            break
        count += 1
    return count
