"""Appends on SQLite: read the head, place the nodes below its leaf, write both, in one transaction."""

from __future__ import annotations

from lash.backend.seal import seal_head, seal_placement
from lash.base.codec import encode
from lash.model.session.commit import AppendResult
from lash.model.session.session import Retention
from lash.plan.session.append import AppendFacts, ApplyAppend, PreparedAppend, ReplayAppend, first_head
from lash.plan.session.meta import kept_of
from lash.plan.session.node import StoredNode
from lash.plan.session.session import HeadRow
from lash.sqlite.engine.database import SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.commit import find_turn, publish_head, write_nodes
from lash.sqlite.rows.session.lookup import missing
from lash.stores.session import DecideAppend


class AppendHead(HeadRow, frozen=True, array_like=True):
    """The head, and whether the session inherits nodes and has a commit of the turn."""

    inherits: bool
    turn: bool


def apply_append(transaction: Transaction, prepared: PreparedAppend, decide: DecideAppend) -> AppendResult:
    """Run one append inside a write transaction."""
    session_id, turn_id = prepared.session_id, prepared.turn_id
    head = transaction.one(AppendHead, "session_for_append", session_id=session_id, turn_id=turn_id)
    if head is None:
        raise missing(transaction, session_id)
    key = head.session_key
    turn = find_turn(transaction, key, turn_id) if head.turn else None
    facts = AppendFacts(head=head, turn=turn, stored_nodes=_stored_nodes(transaction, prepared, head))
    decision = decide(facts)
    if isinstance(decision, ReplayAppend):
        return decision.result
    _write(transaction, prepared, decision)
    return decision.result


def _stored_nodes(transaction: Transaction, prepared: PreparedAppend, head: AppendHead) -> dict[str, StoredNode]:
    """Return those of the nodes whose ids are taken: mostly none, which costs a lookup for each."""
    key = head.session_key
    new: list[dict[str, SQLiteValue]] = [{"session_key": key, "node_id": node.node_id} for node in prepared.nodes]
    if not head.inherits and not transaction.any("node_taken", new):
        return {}
    ids = json_array(node.node_id for node in prepared.nodes)
    return {node.node_id: node for node in transaction.all(StoredNode, "node_stored", session_key=key, node_ids=ids)}


def _write(transaction: Transaction, prepared: PreparedAppend, decision: ApplyAppend) -> None:
    head, first = seal_head(transaction.seals, decision.head), first_head()
    publish_head(
        transaction,
        "append_head",
        prepared.session_id,
        head,
        config=first.config,
        checkpoint_ref=first.checkpoint.ref,
    )
    write_nodes(transaction, head.session_key, seal_placement(transaction.seals, decision.placement))
    _carry_checkpoint(transaction, prepared, decision)
    if prepared.turn_id is not None:
        transaction.run(
            "commit_stamp_turn",
            session_key=head.session_key,
            turn_id=prepared.turn_id,
            commit_hash=prepared.append_hash,
            result=encode(decision.result, AppendResult, "the append's result"),
            trace=None,
            now_ms=transaction.now_ms,
        )


def _carry_checkpoint(transaction: Transaction, prepared: PreparedAppend, decision: ApplyAppend) -> None:
    """Give the new revision the checkpoint of the one before it, or an empty one if there is none."""
    key, revision = decision.head.session_key, decision.head.revision
    if not decision.before.committed:
        saved = first_head().checkpoint
        transaction.run(
            "commit_checkpoint",
            session_key=key,
            revision=revision,
            checkpoint_ref=saved.ref,
            turn_state=saved.turn_state,
            plugin_snapshot_revision=None,
        )
        return
    keep = prepared.keep if decision.before.keep is None else kept_of(decision.before.keep, Retention())
    if keep == 1:
        transaction.run("append_move_checkpoint", session_key=key, revision=revision)
    else:
        transaction.run("append_copy_checkpoint", session_key=key, revision=revision)
        if keep is not None:
            transaction.run("commit_drop_checkpoints", session_key=key, floor=revision - keep + 1)
