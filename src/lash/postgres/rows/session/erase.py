"""Erasing nodes on PostgreSQL."""

from __future__ import annotations

import msgspec

from lash.plan.lease import LeaseRow
from lash.plan.sealed import FIRST_USER_MESSAGE
from lash.plan.session.erase import ErasableNode, Erasure, ErasureFacts, PreparedErasure
from lash.plan.session.node import PathRow, first_user_text
from lash.plan.session.session import HeldNode
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.lookup import missing_within
from lash.stores.session import DecideErasure


class EraseLock(msgspec.Struct, frozen=True, array_like=True):
    """A session that is locked with its lease."""

    now_ms: int
    session_key: int
    revision: int
    keep: int | None
    lease: LeaseRow


async def run_erasure(database: Database, prepared: PreparedErasure, decide: DecideErasure) -> int:
    """Erase nodes in one transaction; return how many."""
    async with database.transaction() as transaction:
        locked = await transaction.one(EraseLock, "erase_lock", prepared.session_id)
        if locked is None:
            raise await missing_within(transaction, prepared.session_id)
        key, ids = locked.session_key, list(prepared.node_ids)
        facts = ErasureFacts(
            now_ms=locked.now_ms,
            revision=locked.revision,
            keep=locked.keep,
            lease=locked.lease,
            held=await transaction.all(HeldNode, "node_held", key, ids),
            found=await transaction.all(ErasableNode, "erase_found", key, ids),
        )
        erasure = decide(facts)
        if erasure is not None:
            await _write(transaction, key, erasure)
        return 0 if erasure is None else len(erasure.node_ids)


async def _write(transaction: Transaction, session_key: int, erasure: Erasure) -> None:
    await transaction.run("erase_nodes", session_key, erasure.node_ids, erasure.body)
    first = await transaction.one(PathRow, "node_first_user", session_key) if erasure.user_messages else None
    text = transaction.seals.text(FIRST_USER_MESSAGE, first_user_text(first))
    await transaction.run("erase_head", session_key, erasure.revision, erasure.user_messages, text)
    await transaction.run("checkpoint_drop_below", session_key, erasure.retention_floor)
