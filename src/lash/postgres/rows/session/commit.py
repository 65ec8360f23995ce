"""Commits on PostgreSQL: plan on facts, write in one guarded statement, plan again when a fact was stale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lash.base.backoff import MAX_PLANS
from lash.base.compression import BlobRef
from lash.errors import CorruptData, StoreUnavailable
from lash.model.session.commit import CommitResult
from lash.plan.lease import LeaseRow
from lash.plan.queue.claim import HeldBatch, held_by_token
from lash.plan.record import RecordName
from lash.plan.session.commit import Apply, CommitFacts, PreparedCommit, Replay, assume_facts, retained
from lash.plan.session.node import StoredNode
from lash.plan.session.session import HeadRow
from lash.plan.session.turn import TurnRow
from lash.postgres.cache import HeadCache, KnownCheckpoint
from lash.postgres.commit.planned import PlannedCommit
from lash.postgres.commit.record import arguments_of_any
from lash.postgres.commit.writer import CommitWriter, WrittenCommit
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.engine.errors import is_taken_key
from lash.postgres.rows.lease import release_lease
from lash.postgres.rows.session.fork import drop_runs, reclaim_graphs
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Number
from lash.stores.session import DecideCommit


class StalePlanError(Exception):
    """Rolls back a transaction whose guard refused the plan."""


class KnownVersion(msgspec.Struct, frozen=True, array_like=True):
    """The version of the record that a commit changes at a place of its list."""

    place: int
    version: int


class FactsAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The facts of a commit, and the rows that exist among those it names."""

    now_ms: int
    head: HeadRow
    turn: TurnRow | None
    lease: LeaseRow
    nodes: list[StoredNode]
    known_refs: list[str]
    held: list[HeldBatch]
    known_attachments: list[str]
    is_inherited: bool
    records: list[KnownVersion]

    def facts(self, prepared: PreparedCommit) -> CommitFacts:
        """Return the facts as the plan takes them."""
        return CommitFacts(
            head=self.head,
            turn=self.turn,
            lease=self.lease,
            held_batches=held_by_token(self.held),
            stored_nodes={node.node_id: node for node in self.nodes},
            missing_refs=prepared.required_refs - {BlobRef(ref) for ref in self.known_refs},
            missing_attachments=frozenset(prepared.attachments) - frozenset(self.known_attachments),
            now_ms=self.now_ms,
            record_versions=_versions(prepared, self.records),
            is_inherited=self.is_inherited,
        )


def _versions(prepared: PreparedCommit, known: Sequence[KnownVersion]) -> dict[RecordName, int]:
    return {prepared.records[each.place - 1].name: each.version for each in known}


class FactsArguments(NamedTuple):
    """The arguments of ``commit_facts`` in its order."""

    session_id: str
    turn_id: str | None
    node_ids: list[str]
    refs: Sequence[str] = ()
    claim_tokens: Sequence[str] = ()
    claim_ids: Sequence[str] = ()
    attachments: Sequence[str] = ()
    record_own: Sequence[bool] = ()
    record_collections: Sequence[str] = ()
    record_keys: Sequence[str] = ()


def facts_arguments(prepared: PreparedCommit) -> FactsArguments:
    """Return the arguments for the facts of a commit."""
    commit = prepared.commit
    return FactsArguments(
        session_id=commit.session_id,
        turn_id=commit.turn_id,
        node_ids=list(prepared.named_nodes),
        refs=list(prepared.required_refs),
        claim_tokens=[each.token for each in commit.completions],
        claim_ids=[each.claim_id for each in commit.completions],
        attachments=prepared.attachments,
        record_own=[each.name.session_id is not None for each in prepared.records],
        record_collections=[each.name.collection for each in prepared.records],
        record_keys=[each.name.key for each in prepared.records],
    )


class PostgresCommits:
    """Plans each commit on the head that this storage saw last, so that most commits are one round trip."""

    def __init__(self, database: Database, heads: HeadCache) -> None:
        self._database = database
        self._heads = heads
        self._writer = CommitWriter(database)

    async def commit(self, prepared: PreparedCommit, decide: DecideCommit) -> CommitResult:
        """Write one commit, or raise why not. Reads the facts only if the head is unknown or was stale."""
        session_id = prepared.commit.session_id
        seen = self._heads.get(session_id)
        facts = None if seen is None else assume_facts(prepared, seen)
        for _ in range(MAX_PLANS):
            decision = decide(facts or await self._load_facts(prepared))
            if isinstance(decision, Replay):
                if prepared.commit.release is not None:
                    await release_lease(self._database, prepared.commit.release)
                return decision.result
            if await self._write(prepared, decision):
                return prepared.result
            facts = None
        raise StoreUnavailable(f"session {session_id!r} changed {MAX_PLANS} times while a commit was being planned")

    async def _write(self, prepared: PreparedCommit, decision: Apply) -> bool:
        """Write the decision; return False if a fact behind it was stale."""
        session_id, prepared = prepared.commit.session_id, retained(prepared, decision.assumed.keep)
        before = self._heads.checkpoint(session_id, decision.assumed)
        planned = PlannedCommit.sealed(self._database.seals, prepared, decision, before)
        written = await (self._replace_graph(planned) if decision.replace else self._writer.write(planned))
        if written is None:
            return False
        after = KnownCheckpoint(prepared.components, written.inherits) if prepared.leaves_one_checkpoint else None
        self._heads.remember(session_id, decision.head, after)
        return True

    async def _load_facts(self, prepared: PreparedCommit) -> CommitFacts:
        commit = prepared.commit
        answer = await self._database.read_one(FactsAnswer, "commit_facts", *facts_arguments(prepared))
        if answer is None:
            self._heads.forget(commit.session_id)
            raise await missing(self._database, commit.session_id)
        self._heads.remember(commit.session_id, answer.head)
        return answer.facts(prepared)

    async def _replace_graph(self, planned: PlannedCommit) -> WrittenCommit | None:
        """Delete the graph and write the new one, in a transaction: one statement would leave their order open."""
        try:
            async with self._database.transaction() as transaction:
                run_key = await _clear_graph(transaction, planned.decision.assumed)
                written = await transaction.one(WrittenCommit, "commit_apply", *arguments_of_any([planned]))
                _require(written is not None)
                schema = self._database.options.schema
                await reclaim_graphs(transaction, schema, await drop_runs(transaction, schema, run_key))
                return written
        except StalePlanError:
            return None
        except CorruptData as error:
            if not is_taken_key(error):
                raise
            return None


async def _clear_graph(transaction: Transaction, head: HeadRow) -> int | None:
    """Delete the graph of a session at this head; return the last run that it inherited."""
    key = head.session_key
    _require(await transaction.one(Number, "commit_lock_graph", key, head.revision, head.node_count) is not None)
    inherited = await transaction.one(Number, "fork_disinherit", key)
    _require(await transaction.run("commit_clear_graph", key) > 0 or head.node_count == 0)
    return None if inherited is None else inherited.number


def _require(fact: bool) -> None:  # noqa: FBT001 (the fact is all there is)
    if not fact:
        raise StalePlanError
