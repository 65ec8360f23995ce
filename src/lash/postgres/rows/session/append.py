"""Appends on PostgreSQL: appends of concurrent callers to one session share a statement."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple

import msgspec

from lash.backend.seal import seal_node
from lash.base.backoff import MAX_PLANS
from lash.base.seal import Seals
from lash.errors import StoreUnavailable
from lash.model.session.commit import AppendResult
from lash.model.session.session import Retention
from lash.plan.sealed import FIRST_USER_MESSAGE
from lash.plan.session.append import AppendFacts, PreparedAppend, ReplayAppend, first_head
from lash.plan.session.meta import kept_of
from lash.plan.session.session import HeadRow
from lash.postgres.cache import HeadCache
from lash.postgres.engine.batcher import Send, StatementBatcher
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.commit import FactsAnswer, FactsArguments
from lash.postgres.rows.session.lookup import missing
from lash.sqlkit.rows import Number
from lash.stores.session import DecideAppend

_MAX_TOGETHER: Final = 64
"""How many appends one statement takes at most: so many callers on one session wait for one statement."""


class WrittenAppend(msgspec.Struct, frozen=True, array_like=True):
    """An append that was written, or one whose session another transaction changed meanwhile."""

    place: int
    written: bool
    revision: int
    parent_node_id: str | None
    head: HeadRow | None


class _Arguments(NamedTuple):
    """The arguments by name, in the order in which ``append.sql`` lists and explains them."""

    session_ids: list[str]
    turn_ids: list[str | None]
    hashes: list[str | None]
    node_ends: list[int]
    user_counts: list[int]
    user_texts: list[str | None]
    max_together: int
    node_ids: list[str]
    user_messages: list[bool]
    bodies: list[str]
    packed_bodies: list[bytes | None]
    kinds: list[str]
    config: str
    checkpoint_ref: str
    turn_state: str
    keep: int | None


class PostgresAppends:
    """Writes appends at the current leaf; one statement per session is in flight, the others wait and share the next.

    An append whose session another transaction changed in the meantime is written in a transaction that locks the
    session first: it waits for its turn instead of trying again and again.
    """

    def __init__(self, database: Database, heads: HeadCache) -> None:
        self._database = database
        self._heads = heads
        self._at_once = self._batcher(self._write)
        self._contended = self._batcher(self._write_under_lock)

    async def append(self, prepared: PreparedAppend, decide: DecideAppend) -> AppendResult:
        """Write one append, or raise why not."""
        for _ in range(MAX_PLANS):
            written = await self._at_once.submit(object(), prepared, serial_key=prepared.session_id)
            if written is not None and not written.written:
                written = await self._contended.submit(object(), prepared, serial_key=prepared.session_id)
            if written is not None and written.written:
                return AppendResult(revision=written.revision, parent_node_id=written.parent_node_id)
            decision = decide(await self._load_facts(prepared))
            if isinstance(decision, ReplayAppend):
                return decision.result
        raise StoreUnavailable(f"session {prepared.session_id!r} changed {MAX_PLANS} times during an append")

    def _batcher(self, send: Send[PreparedAppend, WrittenAppend]) -> StatementBatcher[PreparedAppend, WrittenAppend]:
        return StatementBatcher(send, limit=_MAX_TOGETHER, is_repeatable=lambda each: each.turn_id is not None)

    async def _write(self, appends: Mapping[Hashable, PreparedAppend]) -> Mapping[Hashable, WrittenAppend]:
        """Send appends in one statement, and return the written and the stale ones."""
        chosen = _without_repeats(appends)
        arguments = _arguments(self._database.seals, [*chosen.values()])
        repeatable = all(each.turn_id is not None for each in chosen.values())
        rows = await self._database.write_all(WrittenAppend, "append_apply", *arguments, repeatable=repeatable)
        return self._answers(chosen, rows)

    async def _write_under_lock(self, appends: Mapping[Hashable, PreparedAppend]) -> Mapping[Hashable, WrittenAppend]:
        """Lock the sessions of the appends, and write these then, in one transaction."""
        chosen = _without_repeats(appends)
        async with self._database.transaction() as transaction:
            await transaction.all(Number, "append_lock", [each.session_id for each in chosen.values()])
            rows = await transaction.all(
                WrittenAppend, "append_apply", *_arguments(transaction.seals, [*chosen.values()])
            )
        return self._answers(chosen, rows)

    def _answers(
        self, appends: Mapping[Hashable, PreparedAppend], rows: Sequence[WrittenAppend]
    ) -> Mapping[Hashable, WrittenAppend]:
        keys, values = [*appends], [*appends.values()]
        for session_id, head in {values[row.place - 1].session_id: row.head for row in rows}.items():
            if head is not None:
                count = sum(row.head is not None and row.head.session_key == head.session_key for row in rows)
                self._remember(session_id, head, count, values[0].keep)
        return {keys[row.place - 1]: row for row in rows}

    def _remember(self, session_id: str, head: HeadRow, appends: int, keep: int | None) -> None:
        """Remember the head, and that an only checkpoint is now that of its revision."""
        before = msgspec.structs.replace(head, revision=head.revision - appends)
        is_only = kept_of(head.keep, Retention(keep=keep)) == 1
        self._heads.remember(session_id, head, self._heads.checkpoint(session_id, before) if is_only else None)

    async def _load_facts(self, prepared: PreparedAppend) -> AppendFacts:
        ids = [node.node_id for node in prepared.nodes]
        arguments = FactsArguments(prepared.session_id, prepared.turn_id, ids)
        answer = await self._database.read_one(FactsAnswer, "commit_facts", *arguments)
        if answer is None:
            self._heads.forget(prepared.session_id)
            raise await missing(self._database, prepared.session_id)
        stored = {node.node_id: node for node in answer.nodes}
        return AppendFacts(head=answer.head, turn=answer.turn, stored_nodes=stored)


def _without_repeats(appends: Mapping[Hashable, PreparedAppend]) -> dict[Hashable, PreparedAppend]:
    """Leave out appends that name the turn or a node of an earlier one: a statement does not see its own rows."""
    chosen: dict[Hashable, PreparedAppend] = {}
    taken: set[tuple[str, str, str]] = set()
    for key, each in appends.items():
        names = {(each.session_id, "node", node.node_id) for node in each.nodes}
        names |= set() if each.turn_id is None else {(each.session_id, "turn", each.turn_id)}
        if not names & taken:
            chosen[key] = each
            taken |= names
    return chosen


def _arguments(seals: Seals, appends: Sequence[PreparedAppend]) -> _Arguments:
    nodes = [seal_node(seals, node) for node in chain.from_iterable(each.nodes for each in appends)]
    texts = [[node.user_text for node in each.nodes if node.user_text is not None] for each in appends]
    first = first_head()
    return _Arguments(
        session_ids=[each.session_id for each in appends],
        turn_ids=[each.turn_id for each in appends],
        hashes=[each.append_hash for each in appends],
        node_ends=list(accumulate(len(each.nodes) for each in appends)),
        user_counts=[len(each) for each in texts],
        user_texts=[seals.text(FIRST_USER_MESSAGE, next(iter(each), None)) for each in texts],
        max_together=_MAX_TOGETHER,
        node_ids=[node.node_id for node in nodes],
        user_messages=[node.user_text is not None for node in nodes],
        bodies=[node.stored_body for node in nodes],
        packed_bodies=[node.packed for node in nodes],
        kinds=[node.kind for node in nodes],
        config=first.config,
        checkpoint_ref=first.checkpoint.ref,
        turn_state=first.checkpoint.turn_state,
        keep=appends[0].keep,
    )
