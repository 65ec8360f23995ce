"""Forks on PostgreSQL, and deleting the graphs that no fork inherits any more."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lash.base.seal import Seals
from lash.plan.sealed import FIRST_USER_MESSAGE, METADATA
from lash.plan.session.fork import ForkPoint, InheritedRun, PreparedFork, SourceRow, StoredRun
from lash.plan.session.meta import EncodedMeta, MetaRow
from lash.plan.session.node import PathRow, first_user_text
from lash.plan.session.session import missing_session
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.lookup import missing_within
from lash.sqlkit.rows import Number
from lash.stores.session import DecideFork


async def run_fork(database: Database, prepared: PreparedFork, decide: DecideFork) -> tuple[MetaRow, bool]:
    """Create the fork in one transaction, unless its id is taken."""
    async with database.transaction() as transaction:
        existing = await transaction.one(MetaRow, "session_meta", prepared.meta.session_id)
        if existing is not None:
            return existing, False
        point = await _find_point(transaction, prepared, decide)
        meta = point.encoded.meta
        created = await transaction.one(MetaRow, "session_create", *create_arguments(transaction.seals, point.encoded))
        if created is not None:
            await _fill(transaction, created.session_key, point)
        # Another caller may have created it in the meantime.
        row = await transaction.one(MetaRow, "session_meta", meta.session_id)
        if row is None:
            raise missing_session(meta.session_id, deleted=True)
        return row, created is not None


def create_arguments(seals: Seals, encoded: EncodedMeta) -> tuple[object, ...]:
    """Return the arguments of ``session_create``."""
    meta, terms = encoded.meta, encoded.terms
    metadata = seals.text(METADATA, encoded.metadata, meta.session_id)
    return (
        *(meta.session_id, meta.name, meta.model, meta.cwd, encoded.relation),
        *(meta.owner, encoded.labels, metadata, meta.expires_at_ms),
        *(list(terms.keys()), list(terms.values()), encoded.keep),
    )


async def drop_runs(transaction: Transaction, schema: str, run_key: int | None) -> list[int]:
    """Delete the runs of a list that no fork inherits any more.

    Returns the sessions that own their nodes, the youngest first.
    """
    if run_key is None:
        return []
    # A separate statement, so that the next one sees what others committed while this one waited.
    await transaction.run("fork_runs_gate", schema)
    return [row.number for row in await transaction.all(Number, "fork_drop_runs", run_key)]


async def reclaim_graphs(transaction: Transaction, schema: str, session_keys: Iterable[int]) -> None:
    """Delete the nodes that no fork inherits any more, of those of the sessions that are deleted.

    The keys must come in descending order: every transaction locks the gates in this order.
    """
    for session_key in session_keys:
        # A separate statement, so that the next one sees what others committed while this one waited.
        await transaction.run("fork_gate", schema, session_key)
        await transaction.run("fork_reclaim_nodes", session_key)
        await transaction.run("fork_reclaim_segments", session_key)


async def recount(transaction: Transaction, session_key: int) -> None:
    """Recount the live nodes that a session sees, its own and the inherited ones."""
    first = await transaction.one(PathRow, "node_first_user", session_key)
    text = transaction.seals.text(FIRST_USER_MESSAGE, first_user_text(first))
    await transaction.run("node_recount", session_key, text)


async def _find_point(transaction: Transaction, prepared: PreparedFork, decide: DecideFork) -> ForkPoint:
    source_id = prepared.source_session_id
    source = await transaction.one(SourceRow, "fork_lock_source", source_id)
    if source is None:
        raise await missing_within(transaction, source_id)
    runs = await transaction.all(InheritedRun, "fork_path", source.session_key, prepared.start_node(source))
    inherited = await transaction.all(StoredRun, "fork_runs", source.session_key)
    return decide(source, runs, inherited)


async def _fill(transaction: Transaction, session_key: int, point: ForkPoint) -> None:
    if not point.committed:
        return
    run_key = point.shared_run
    for run in point.new_runs:
        added = await transaction.one(Number, "fork_run", run_key, *msgspec.structs.astuple(run))
        run_key = None if added is None else added.number
    leaf = (point.node_id, point.leaf_segment, point.leaf_depth)
    await transaction.one(Number, "fork_fill", session_key, point.source_key, *leaf, run_key)
    await recount(transaction, session_key)
