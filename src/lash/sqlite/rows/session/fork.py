"""Creating sessions and forks on SQLite, and deleting the graphs that no fork inherits any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lash.plan.sealed import FIRST_USER_MESSAGE, METADATA
from lash.plan.session.fork import ForkPoint, InheritedRun, PreparedFork, SourceRow, StoredRun
from lash.plan.session.meta import EncodedMeta, MetaRow
from lash.plan.session.node import PathRow, first_user_text
from lash.plan.session.session import Floors
from lash.sqlite.engine.database import Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.lookup import find_head, find_meta
from lash.sqlkit.rows import Number
from lash.stores.session import DecideFork

_COPIES: Final = ("fork_frames", "fork_blobs", "fork_components", "fork_checkpoint", "fork_attachments")
"""The queries that copy the head of the source into a fork."""


def apply_fork(transaction: Transaction, prepared: PreparedFork, decide: DecideFork) -> tuple[MetaRow, bool]:
    """Create the fork inside a write transaction, unless its id is taken."""
    session_id = prepared.meta.session_id
    existing = transaction.one(MetaRow, "session_meta", session_id=session_id)
    if existing is not None:
        return existing, False
    head = find_head(transaction, prepared.source_session_id)
    source = SourceRow(head.session_key, head.committed, head.leaf_node_id)
    node_id = prepared.start_node(source)
    runs = transaction.all(InheritedRun, "fork_path", session_key=head.session_key, node_id=node_id)
    inherited = transaction.all(StoredRun, "fork_runs", session_key=head.session_key)
    point = decide(source, runs, inherited)
    insert_session(transaction, point.encoded)
    if point.committed:
        _fill(transaction, find_meta(transaction, session_id).session_key, point)
    return find_meta(transaction, session_id), True


def insert_session(transaction: Transaction, encoded: EncodedMeta) -> bool:
    """Create a session with its lease row unless its id is taken; return whether it was created."""
    meta = encoded.meta
    floors = transaction.one(Floors, "session_take_id", session_id=meta.session_id)
    if floors is None:
        return False
    transaction.run(
        "session_insert",
        session_id=meta.session_id,
        name=meta.name,
        model=meta.model,
        cwd=meta.cwd,
        relation=encoded.relation,
        revision=floors.revision,
        owner=meta.owner,
        labels=encoded.labels,
        metadata=transaction.seals.text(METADATA, encoded.metadata, meta.session_id),
        expires_at_ms=meta.expires_at_ms,
        keep=encoded.keep,
        now_ms=transaction.now_ms,
    )
    transaction.run("session_insert_lease", session_id=meta.session_id, fencing=floors.fencing)
    if encoded.terms:
        add_labels(transaction, find_meta(transaction, meta.session_id).session_key, encoded.terms)
    return True


def add_labels(transaction: Transaction, session_key: int, terms: dict[str, str]) -> None:
    """Let lists find the session by its owner and its labels."""
    transaction.run("session_add_labels", session_key=session_key, terms=json_array(terms.items()))


def last_run(transaction: Transaction, session_key: int) -> int | None:
    """Return the last run that a session inherits. Call it before the session is deleted."""
    row = transaction.one(Number, "fork_last_run", session_key=session_key)
    return None if row is None else row.number


def disinherit(transaction: Transaction, session_key: int) -> int | None:
    """Delete what a session inherits, and return its last run."""
    row = transaction.one(Number, "fork_disinherit", session_key=session_key)
    return None if row is None else row.number


def drop_runs(transaction: Transaction, run_key: int | None) -> list[int]:
    """Delete the runs of a list that no fork inherits any more; return the owners of their nodes, youngest first."""
    if run_key is None:
        return []
    owners = {row.number for row in transaction.all(Number, "fork_drop_runs", run_key=run_key)}
    return sorted(owners, reverse=True)


def reclaim_graphs(transaction: Transaction, session_keys: Iterable[int]) -> None:
    """Delete the nodes that no fork inherits any more, of those of the sessions that are deleted."""
    for session_key in session_keys:
        transaction.run("fork_reclaim_nodes", session_key=session_key)
        transaction.run("fork_reclaim_segments", session_key=session_key)


def recount(transaction: Transaction, session_key: int) -> None:
    """Recount the live nodes that a session sees, its own and the inherited ones."""
    first = transaction.one(PathRow, "node_first_user", session_key=session_key)
    text = transaction.seals.text(FIRST_USER_MESSAGE, first_user_text(first))
    transaction.run("node_recount", session_key=session_key, first_user_message=text)


def _fill(transaction: Transaction, session_key: int, point: ForkPoint) -> None:
    run_key = _add_runs(transaction, point)
    if run_key is not None:
        transaction.run("fork_segment", session_key=session_key)
        transaction.run("fork_inherit", session_key=session_key, run_key=run_key)
    transaction.run(
        "fork_head",
        session_key=session_key,
        source_key=point.source_key,
        leaf_node_id=point.node_id,
        leaf_segment=point.leaf_segment,
        leaf_depth=point.leaf_depth,
    )
    for name in _COPIES:
        transaction.run(name, session_key=session_key, source_key=point.source_key)
    recount(transaction, session_key)


def _add_runs(transaction: Transaction, point: ForkPoint) -> int | None:
    """Add the new runs to the list that the fork shares with its source; return the last run of the fork."""
    last = point.shared_run
    for run in point.new_runs:
        added = transaction.one(Number, "fork_run", next_key=last, **msgspec.structs.asdict(run))
        last = None if added is None else added.number
    return last
