"""Commits on PostgreSQL: plan on facts, write in one guarded statement, plan again when a fact was stale."""

from __future__ import annotations

from typing import Final

from lash.base.compression import BlobRef
from lash.errors import StoreUnavailable
from lash.model.session.commit import CommitResult
from lash.plan.queue.queue import held_by_token
from lash.plan.session.commit import CommitFacts, PreparedCommit, Replay, assume_facts, plan_commit
from lash.postgres.cache import HeadCache, KnownCheckpoint
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.together import arguments_together
from lash.postgres.commit.writer import CommitWriter, WrittenCommit
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.lease import release_lease
from lash.postgres.rows.session.fork import graph_owners, reclaim_graphs
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.session.rows import FactsAnswer
from lash.sqlkit.rows import Number

_MAX_PLANS: Final = 10


class _StalePlanError(Exception):
    """Ends a transaction whose guard refused the plan."""


async def run_commit(
    database: Database, writer: CommitWriter, heads: HeadCache, prepared: PreparedCommit
) -> CommitResult:
    """Apply one commit or raise why not. One round trip if the head was seen before and nothing is in the way."""
    session_id = prepared.commit.session_id
    seen = heads.get(session_id)
    facts = None if seen is None else assume_facts(prepared, seen)
    for _ in range(_MAX_PLANS):
        decision = plan_commit(prepared, facts or await _load_facts(database, heads, prepared))
        if isinstance(decision, Replay):
            if prepared.commit.release is not None:
                await release_lease(database, prepared.commit.release)
            return decision.result
        before = heads.checkpoint(session_id, decision.assumed)
        planned = PlannedCommit(prepared=prepared, decision=decision, before=before)
        written = await _apply(database, writer, planned)
        if written is not None:
            is_known = prepared.leaves_one_checkpoint
            checkpoint = KnownCheckpoint(prepared.components, written.inherits) if is_known else None
            heads.remember(session_id, decision.head, checkpoint)
            return prepared.result
        facts = None
    raise StoreUnavailable(f"session {session_id!r} changed {_MAX_PLANS} times while a commit was being planned")


async def _load_facts(database: Database, heads: HeadCache, prepared: PreparedCommit) -> CommitFacts:
    commit = prepared.commit
    answer = await database.read_one(
        FactsAnswer,
        "commit_facts",
        commit.session_id,
        commit.turn_id,
        list(prepared.named_nodes),
        list(prepared.required_refs),
        [each.token for each in commit.completions],
        [each.claim_id for each in commit.completions],
        list(prepared.attachments),
    )
    if answer is None:
        heads.forget(commit.session_id)
        raise await missing(database, commit.session_id)
    heads.remember(commit.session_id, answer.head)
    return CommitFacts(
        head=answer.head,
        turn=answer.turn,
        lease=answer.lease,
        held_batches=held_by_token(answer.held),
        stored_nodes={node.node_id: node for node in answer.nodes},
        missing_refs=prepared.required_refs - {BlobRef(ref) for ref in answer.known_refs},
        missing_attachments=frozenset(prepared.attachments) - frozenset(answer.known_attachments),
        now_ms=answer.now_ms,
        is_inherited=answer.is_inherited,
    )


async def _apply(database: Database, writer: CommitWriter, planned: PlannedCommit) -> WrittenCommit | None:
    """Write what was decided, and return the answer if the guard let it pass."""
    if not planned.decision.replace:
        return await writer.write(planned)
    try:
        async with database.transaction() as transaction:
            return await _replace(transaction, database.options.schema, planned)
    except _StalePlanError:
        return None


async def _replace(transaction: Transaction, schema: str, planned: PlannedCommit) -> WrittenCommit:
    """Clear the graph and write the new one; within one statement the order of the two would be open."""
    head = planned.decision.assumed
    key = head.session_key
    if await transaction.one(Number, "commit_lock_graph", key, head.revision, head.node_count) is None:
        raise _StalePlanError
    owners = await graph_owners(transaction, key)
    await transaction.run("fork_disinherit", key)
    if await transaction.run("commit_clear_graph", key) == 0 and head.node_count > 0:
        raise _StalePlanError
    written = await transaction.one(WrittenCommit, "commit_apply", *arguments_together([planned]))
    if written is None:
        raise _StalePlanError
    await reclaim_graphs(transaction, schema, owners)
    return written
