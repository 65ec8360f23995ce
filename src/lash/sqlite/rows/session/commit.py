"""Commits on SQLite: read the facts, decide, write the decision, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lash.backend.seal import seal_commit
from lash.base.compression import BlobRef, StoredBlob
from lash.errors import CorruptData
from lash.model.session.commit import CommitResult, ReplaceFull
from lash.plan.lease import NEVER_HELD, LeaseRow
from lash.plan.queue.claim import HeldBatch, held_by_token
from lash.plan.record import RecordName
from lash.plan.session.checkpoint import CurrentComponent, ReplacedComponent, change_components
from lash.plan.session.commit import Apply, CommitFacts, PreparedCommit, Replay, assume_nodes, retained
from lash.plan.session.node import Placement, StoredNode
from lash.plan.session.session import HeadRow
from lash.plan.session.turn import TurnRow
from lash.plan.session.usage import UsageRow, merge_usage, require_room
from lash.sqlite.commit_head import FEW_NODES, CommitHead, find_commit_head
from lash.sqlite.consume import consume, held_batches
from lash.sqlite.engine.database import SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.attachment import stamp_attachments
from lash.sqlite.rows.effect import retire_effects
from lash.sqlite.rows.lease import release_lease
from lash.sqlite.rows.record import RecordState, record_states, state_versions, write_records
from lash.sqlite.rows.session.fork import disinherit, drop_runs, reclaim_graphs
from lash.sqlkit.rows import Flag, Text
from lash.stores.session import DecideCommit


def apply_commit(transaction: Transaction, prepared: PreparedCommit, decide: DecideCommit) -> CommitResult:
    """Run one commit inside a write transaction."""
    rows = find_commit_head(transaction, prepared)
    found = rows[0]
    records = record_states(transaction, prepared.records)
    held = held_batches(transaction, prepared, rows)
    decision = decide(_load_facts(transaction, prepared, found, records, held))
    if isinstance(decision, Apply):
        sealed, writing = seal_commit(transaction.seals, retained(prepared, found.keep), decision)
        _write(transaction, sealed, writing, found)
        consume(transaction, sealed, writing.head, held)
        write_records(transaction, sealed.records, records)
    if prepared.commit.release is not None:
        release_lease(transaction, prepared.commit.release)
    return decision.result if isinstance(decision, Replay) else prepared.result


def _load_facts(
    transaction: Transaction,
    prepared: PreparedCommit,
    head: CommitHead,
    records: Mapping[RecordName, RecordState],
    held: Sequence[HeldBatch],
) -> CommitFacts:
    key = head.session_key
    turn = find_turn(transaction, key, prepared.commit.turn_id) if head.turn else None
    refs = prepared.required_refs
    known = transaction.all(Text, "commit_known_refs", session_key=key, refs=json_array(refs)) if refs else []
    return CommitFacts(
        head=head,
        turn=turn,
        lease=NEVER_HELD if prepared.commit.fence is None else head.lease,
        held_batches=held_by_token(held),
        stored_nodes=_stored_nodes(transaction, prepared, head),
        missing_attachments=_missing_attachments(transaction, prepared, key),
        missing_refs=refs - {BlobRef(row.text) for row in known},
        now_ms=transaction.now_ms,
        record_versions=state_versions(records, transaction.now_ms),
        is_inherited=_is_inherited(transaction, key) if isinstance(prepared.commit.graph, ReplaceFull) else False,
    )


def find_turn(transaction: Transaction, session_key: int, turn_id: str | None) -> TurnRow | None:
    """Return the commit that a turn already has."""
    return transaction.one(TurnRow, "commit_turn", session_key=session_key, turn_id=turn_id)


def find_lease(transaction: Transaction, head: HeadRow) -> LeaseRow:
    """Return the lease of a session."""
    row = transaction.one(LeaseRow, "lease_of", session_key=head.session_key)
    if row is None:
        raise CorruptData(f"a session has no lease row (key {head.session_key})")
    return row


def _stored_nodes(transaction: Transaction, prepared: PreparedCommit, head: CommitHead) -> dict[str, StoredNode]:
    """Return those of the nodes that a commit names which are stored. Most commits name the leaf alone."""
    names = prepared.named_nodes
    if not names:
        return {}
    assumed = None if head.inherits else assume_nodes(prepared, head)
    if assumed is not None:
        # The query of the head has looked for the first ones.
        more: list[dict[str, SQLiteValue]] = [
            {"session_key": head.session_key, "node_id": each.node_id} for each in prepared.nodes[FEW_NODES:]
        ]
        if not head.taken and not transaction.any("node_taken", more):
            return assumed
    nodes = transaction.all(StoredNode, "node_stored", session_key=head.session_key, node_ids=json_array(names))
    return {node.node_id: node for node in nodes}


def _is_inherited(transaction: Transaction, session_key: int) -> bool:
    flag = transaction.one(Flag, "fork_exists", session_key=session_key)
    return flag is not None and flag.value


def _missing_attachments(transaction: Transaction, prepared: PreparedCommit, session_key: int) -> frozenset[str]:
    wanted = prepared.attachments
    if not wanted:
        return frozenset()
    ids = json_array(wanted)
    known = transaction.all(Text, "commit_known_attachments", session_key=session_key, attachment_ids=ids)
    return frozenset(wanted) - {row.text for row in known}


def _write(transaction: Transaction, prepared: PreparedCommit, decision: Apply, found: CommitHead) -> None:
    _write_head(transaction, prepared, decision.head)
    if prepared.agent is not None and prepared.agent != found.agent:
        transaction.run("commit_agent", session_key=found.session_key, agent=prepared.agent)
    _write_graph(transaction, decision)
    _write_checkpoint(transaction, prepared, decision.head, found.oldest_checkpoint)
    ended = (found.components or prepared.components) and _write_components(transaction, prepared, decision.head)
    # Components that this commit ended may lie below the floor already.
    if found.old_components or ended:
        _drop_components(transaction, found.session_key, prepared.retention_floor)
    if found.frames or prepared.frames:
        _write_frames(transaction, prepared, decision.head)
    _write_usage(transaction, prepared, decision.head)
    if prepared.attachments:
        stamp_attachments(transaction, decision.head.session_key, prepared.attachments)
    _write_turn(transaction, prepared, decision.head)
    if found.effects and prepared.scope_id is not None:
        retire_effects(transaction, prepared.scope_id)


def _write_head(transaction: Transaction, prepared: PreparedCommit, head: HeadRow) -> None:
    publish_head(
        transaction,
        "commit_head",
        prepared.commit.session_id,
        head,
        config=prepared.config,
        current_frame_id=prepared.commit.current_frame_id,
        checkpoint_ref=prepared.checkpoint.ref,
    )


def publish_head(
    transaction: Transaction, statement: str, session_id: str, head: HeadRow, **others: SQLiteValue
) -> None:
    """Replace the head of a session; ``others`` are the arguments that only this statement takes."""
    published = transaction.run(
        statement,
        session_key=head.session_key,
        revision=head.revision,
        leaf_node_id=head.leaf_node_id,
        leaf_segment=head.leaf_segment,
        leaf_depth=head.leaf_depth,
        segment_count=head.segment_count,
        node_seq=head.node_seq,
        node_count=head.node_count,
        first_user_message=head.first_user_message,
        user_message_count=head.user_message_count,
        now_ms=transaction.now_ms,
        **others,
    )
    if published != 1:
        raise CorruptData(f"the head of session {session_id!r} changed inside a transaction")


def _write_graph(transaction: Transaction, decision: Apply) -> None:
    key = decision.head.session_key
    if decision.replace:
        _clear_graph(transaction, key)
    write_nodes(transaction, key, decision.placement)


def write_nodes(transaction: Transaction, session_key: int, placement: Placement) -> None:
    """Write new segments and nodes at the positions that the plan chose."""
    for segment in placement.segments:
        transaction.run("commit_segment", session_key=session_key, **segment._asdict())
    transaction.run_many(
        "commit_node",
        (
            {
                "session_key": session_key,
                "segment": placed.segment,
                "depth": placed.depth,
                "seq": placed.seq,
                "node_id": placed.node.node_id,
                "parent_node_id": placed.node.parent_node_id,
                "user_message": int(placed.node.user_text is not None),
                "body": placed.node.stored_body,
                "packed": placed.node.packed,
                "kind": placed.node.kind,
                "begins_branch": int(placed.begins_branch),
            }
            for placed in placement.nodes
        ),
    )


def _clear_graph(transaction: Transaction, session_key: int) -> None:
    run_key = disinherit(transaction, session_key)
    transaction.run("commit_clear_graph", session_key=session_key)
    reclaim_graphs(transaction, drop_runs(transaction, run_key))


def _write_checkpoint(transaction: Transaction, prepared: PreparedCommit, head: HeadRow, oldest: int | None) -> None:
    """Write the checkpoint, in the place of the one before if only that is no longer kept."""
    in_place = oldest == head.revision - 1
    transaction.run(
        "commit_replace_checkpoint" if in_place else "commit_checkpoint",
        session_key=head.session_key,
        revision=head.revision,
        checkpoint_ref=prepared.checkpoint.ref,
        turn_state=prepared.checkpoint.turn_state,
        plugin_snapshot_revision=prepared.checkpoint.manifest.plugin_snapshot_revision,
    )
    if oldest is not None and not in_place:
        transaction.run("commit_drop_checkpoints", session_key=head.session_key, floor=prepared.retention_floor)


def _write_components(transaction: Transaction, prepared: PreparedCommit, head: HeadRow) -> bool:
    """Write the components that change, and return whether any has ended."""
    key, revision = head.session_key, head.revision
    current = transaction.all(CurrentComponent, "commit_current_components", session_key=key)
    keep_ended = revision > prepared.retention_floor
    changes = change_components(current, prepared.components, keep_ended=keep_ended)
    blobs = {blob.ref: blob for blob in prepared.blobs}
    for each in changes.replaced:
        _replace_component(transaction, head, each, blobs)
    transaction.run_many("commit_blob", (_blob_values(key, blob) for blob in blobs.values()))
    transaction.run_many(
        "commit_end_component",
        ({"session_key": key, "key": ended, "revision": revision} for ended in changes.ended),
    )
    transaction.run_many(
        "commit_begin_component",
        ({"session_key": key, "key": begun.key, "hash": begun.hash, "revision": revision} for begun in changes.begun),
    )
    return bool(changes.ended)


def _replace_component(
    transaction: Transaction, head: HeadRow, change: ReplacedComponent, blobs: dict[BlobRef, StoredBlob]
) -> None:
    """Replace the bytes of a component, in the same row if no other uses them; remove them from ``blobs`` then."""
    key, blob = head.session_key, blobs.get(change.hash)
    transaction.run(
        "commit_replace_component", session_key=key, key=change.key, hash=change.hash, revision=head.revision
    )
    in_place = blob is not None and transaction.run(
        "commit_replace_blob", **_blob_values(key, blob), replaced=change.replaced
    )
    if in_place:
        del blobs[change.hash]
        return
    transaction.run("commit_drop_blobs", session_key=key, hashes=json_array([change.replaced]))


def _blob_values(session_key: int, blob: StoredBlob) -> dict[str, SQLiteValue]:
    return {
        "session_key": session_key,
        "hash": blob.ref,
        "codec": blob.codec.value,
        "size": blob.size,
        "content": blob.content,
    }


def drop_checkpoints(transaction: Transaction, session_key: int, floor: int) -> None:
    """Delete the checkpoints below a revision, and the components and bytes that only these used."""
    transaction.run("commit_drop_checkpoints", session_key=session_key, floor=floor)
    _drop_components(transaction, session_key, floor)


def _drop_components(transaction: Transaction, session_key: int, floor: int) -> None:
    dropped = transaction.all(Text, "commit_drop_components", session_key=session_key, floor=floor)
    if dropped:
        hashes = json_array({row.text for row in dropped})
        transaction.run("commit_drop_blobs", session_key=session_key, hashes=hashes)


def _write_frames(transaction: Transaction, prepared: PreparedCommit, head: HeadRow) -> None:
    key = head.session_key
    frame_ids = json_array(row.frame_id for row in prepared.frames)
    transaction.run("commit_drop_frames", session_key=key, frame_ids=frame_ids)
    transaction.run_many(
        "commit_frame",
        (
            {"session_key": key, "frame_id": row.frame_id, "position": row.position, "body": row.body}
            for row in prepared.frames
        ),
    )


def _write_usage(transaction: Transaction, prepared: PreparedCommit, head: HeadRow) -> None:
    if not prepared.usage:
        return
    now_ms = transaction.now_ms
    transaction.run_many("commit_usage", ({**row, "now_ms": now_ms} for row in _usage_rows(prepared.usage, head)))
    for total in _usage_rows(prepared.usage_totals, head):
        if not transaction.run("commit_usage_total", **total):
            _explain_usage(transaction, prepared, head)


def _explain_usage(transaction: Transaction, prepared: PreparedCommit, head: HeadRow) -> None:
    """Raise the error for a total that was not written."""
    pairs = json_array((row.source, row.model) for row in prepared.usage_totals)
    before = transaction.all(UsageRow, "commit_usage_totals", session_key=head.session_key, pairs=pairs)
    require_room(merge_usage([*before, *prepared.usage_totals]))
    raise CorruptData(f"the usage of session {prepared.commit.session_id!r} could not be added up")


def _usage_rows(rows: tuple[UsageRow, ...], head: HeadRow) -> list[dict[str, SQLiteValue]]:
    return [
        {
            "session_key": head.session_key,
            "revision": head.revision,
            "ordinal": ordinal,
            "source": row.source,
            "model": row.model,
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "cached_input_tokens": row.cached_input_tokens,
            "reasoning_tokens": row.reasoning_tokens,
        }
        for ordinal, row in enumerate(rows)
    ]


def _write_turn(transaction: Transaction, prepared: PreparedCommit, head: HeadRow) -> None:
    if prepared.commit.turn_id is None:
        return
    transaction.run(
        "commit_stamp_turn",
        session_key=head.session_key,
        turn_id=prepared.commit.turn_id,
        commit_hash=prepared.commit_hash,
        result=prepared.stored_result,
        trace=prepared.trace,
        now_ms=transaction.now_ms,
    )
