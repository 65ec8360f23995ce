"""Erasing nodes on SQLite."""

from __future__ import annotations

from lash.plan.sealed import FIRST_USER_MESSAGE
from lash.plan.session.erase import ErasableNode, Erasure, ErasureFacts, PreparedErasure
from lash.plan.session.node import PathRow, first_user_text
from lash.plan.session.session import HeldNode
from lash.sqlite.engine.database import Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.commit import drop_checkpoints, find_lease
from lash.sqlite.rows.session.lookup import find_head
from lash.stores.session import DecideErasure


def apply_erasure(transaction: Transaction, prepared: PreparedErasure, decide: DecideErasure) -> int:
    """Run one erasure inside a write transaction; return how many nodes were erased."""
    head, ids = find_head(transaction, prepared.session_id), json_array(prepared.node_ids)
    key = head.session_key
    facts = ErasureFacts(
        now_ms=transaction.now_ms,
        revision=head.revision,
        keep=head.keep,
        lease=find_lease(transaction, head),
        held=transaction.all(HeldNode, "node_held", session_key=key, node_ids=ids),
        found=transaction.all(ErasableNode, "erase_found", session_key=key, node_ids=ids),
    )
    erasure = decide(facts)
    if erasure is not None:
        _write(transaction, key, erasure)
    return 0 if erasure is None else len(erasure.node_ids)


def _write(transaction: Transaction, session_key: int, erasure: Erasure) -> None:
    ids = json_array(erasure.node_ids)
    transaction.run("erase_nodes", session_key=session_key, node_ids=ids, body=erasure.body)
    first = transaction.one(PathRow, "node_first_user", session_key=session_key) if erasure.user_messages else None
    transaction.run(
        "erase_head",
        session_key=session_key,
        revision=erasure.revision,
        user_messages=erasure.user_messages,
        first_user_message=transaction.seals.text(FIRST_USER_MESSAGE, first_user_text(first)),
        now_ms=transaction.now_ms,
    )
    transaction.run("append_copy_checkpoint", session_key=session_key, revision=erasure.revision)
    drop_checkpoints(transaction, session_key, erasure.retention_floor)
