"""Forks on PostgreSQL, and what of a graph goes when nobody inherits it any more."""

from __future__ import annotations

from collections.abc import Iterable

from lash.model.session.session import CreatedSession
from lash.plan.session.fork import (
    ForkPoint,
    InheritedRun,
    PreparedFork,
    SourceRow,
    existing_fork,
    fork_node,
    fork_point,
)
from lash.plan.session.node import PathRow, decode_node, user_text
from lash.plan.session.session import MetaRow, decode_meta, missing_session
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.lookup import missing_within
from lash.sqlkit.rows import Number


async def run_fork(database: Database, prepared: PreparedFork) -> CreatedSession:
    """Create the fork, or return the one that exists."""
    async with database.transaction() as transaction:
        existing = await transaction.one(MetaRow, "session_meta", prepared.meta.session_id)
        if existing is not None:
            return existing_fork(prepared, existing)
        point = await _find_point(transaction, prepared)
        meta = point.meta
        arguments = (meta.session_id, meta.name, meta.model, meta.cwd, point.relation)
        created = await transaction.one(MetaRow, "session_create", *arguments)
        if created is not None:
            await _fill(transaction, created.session_key, point)
        # Where somebody else created it in the meantime, this finds what they made.
        row = await transaction.one(MetaRow, "session_meta", meta.session_id)
        if row is None:
            raise missing_session(meta.session_id, deleted=True)
        if created is None:
            return existing_fork(prepared, row)
        return CreatedSession(meta=decode_meta(row), revision=row.revision, created=True)


async def graph_owners(transaction: Transaction, session_key: int) -> list[int]:
    """Return the sessions from which a fork inherits; ask before it is deleted or replaced."""
    return [row.number for row in await transaction.all(Number, "fork_owners", session_key)]


async def reclaim_graphs(transaction: Transaction, schema: str, session_keys: Iterable[int]) -> None:
    """Delete what nobody inherits any more from those of the sessions that are deleted.

    The keys must come in falling order, in which every transaction takes the gates.
    """
    for session_key in session_keys:
        # A statement of its own, so that the next one sees what others committed before they let us in.
        await transaction.run("fork_gate", schema, session_key)
        await transaction.run("fork_reclaim_nodes", session_key)
        await transaction.run("fork_reclaim_segments", session_key)


async def recount(transaction: Transaction, session_key: int) -> None:
    """Count again what a session sees, own nodes and inherited ones."""
    first = await transaction.one(PathRow, "node_first_user", session_key)
    text = None if first is None else user_text(decode_node(first))
    await transaction.run("node_recount", session_key, text or "")


async def _find_point(transaction: Transaction, prepared: PreparedFork) -> ForkPoint:
    source_id = prepared.source_session_id
    source = await transaction.one(SourceRow, "fork_lock_source", source_id)
    if source is None:
        raise await missing_within(transaction, source_id)
    node_id = fork_node(prepared, source)
    return fork_point(prepared, source, await transaction.all(InheritedRun, "fork_path", source.session_key, node_id))


async def _fill(transaction: Transaction, session_key: int, point: ForkPoint) -> None:
    if not point.committed:
        return
    await transaction.one(
        Number,
        "fork_fill",
        session_key,
        point.source_key,
        *(point.node_id, point.leaf_segment, point.leaf_depth),
        [run.owner_key for run in point.runs],
        [run.segment for run in point.runs],
        [run.floor for run in point.runs],
        [run.ceiling for run in point.runs],
    )
    await recount(transaction, session_key)
