"""The session store, and the handle on one session, on every backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from lash.backend.record import RecordValues
from lash.base.compression import BlobRef
from lash.base.limits import check_identifier, check_identifiers, check_limit
from lash.errors import BlobNotFound, CorruptData, NodeNotFound
from lash.model.lease import LeaseFence
from lash.model.session.change import SessionChangePage
from lash.model.session.checkpoint import Checkpoint, CheckpointManifest
from lash.model.session.commit import AppendResult, Commit, CommitResult
from lash.model.session.created import CreatedSession
from lash.model.session.node import Node, RawNode
from lash.model.session.session import (
    ActivePath,
    ReadScope,
    Retention,
    RootRelation,
    SessionFilter,
    SessionHead,
    SessionMeta,
    SessionOrder,
    SessionPage,
    SessionRead,
    SessionRelation,
    VacuumReport,
)
from lash.model.session.trace import TurnRecord
from lash.model.value import JSONObject
from lash.plan.key_range import key_range
from lash.plan.session.append import plan_append, prepare_append
from lash.plan.session.change import (
    START,
    cursor_at,
    decode_changes,
    decode_session_cursor,
    encode_session_cursor,
    feed_gap,
)
from lash.plan.session.checkpoint import check_ref, decode_checkpoint, decode_component, decode_manifest
from lash.plan.session.commit import CommitRules, plan_commit, prepare_commit
from lash.plan.session.erase import plan_erasure, prepare_erasure
from lash.plan.session.first_commit import prepare_first_commit, repeated_first_commit
from lash.plan.session.fork import existing_fork, fork_point, prepare_fork
from lash.plan.session.kind import check_kind, check_page
from lash.plan.session.meta import (
    EncodedMeta,
    GivenMeta,
    MetaRow,
    decode_meta,
    edit_change,
    encode_meta,
    new_meta,
    save_change,
)
from lash.plan.session.node import decode_node, graph_nodes, raw_piece, raw_tail
from lash.plan.session.page import PageParts, decode_page, prepare_page
from lash.plan.session.session import (
    ShortPath,
    check_path,
    check_scope,
    decode_head,
    decode_path,
    decode_raw_path,
    require_removable,
)
from lash.plan.session.trace import decode_turn
from lash.plan.session.turn import check_turn_choice, revision_of
from lash.stores.hints import NO_TAGS, HintListener, Hints
from lash.stores.session import SessionRows

_POLL_S: Final = 1.0
"""How often a reader that follows the feed reads without a hint; hints can be lost, and edits give none."""
_GATHER_S: Final = 0.05
"""How long it waits after a hint, so that the changes of a burst are one read."""


class Sessions:
    """The sessions of one storage; the contract is `lash.stores.session.SessionStore`."""

    def __init__(self, rows: SessionRows, rules: CommitRules, values: RecordValues, hints: Hints) -> None:
        self._rows = rows
        self._rules = rules
        self._values = values
        self._hints = hints

    async def create(
        self,
        session_id: str,
        *,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        relation: SessionRelation = RootRelation(),
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: JSONObject | None = None,
        expires_at_ms: int | None = None,
        retention: Retention | None = None,
        commit: Commit | None = None,
    ) -> CreatedSession:
        given = GivenMeta(
            name=name,
            model=model,
            cwd=cwd,
            relation=relation,
            owner=owner,
            labels=labels,
            metadata=metadata,
            expires_at_ms=expires_at_ms,
            retention=retention,
        )
        encoded = encode_meta(new_meta(session_id, given), session_id)
        if commit is not None:
            return await self._create_committed(encoded, commit)
        row, created = await self._rows.create(encoded)
        return _created(row, created=created)

    async def _create_committed(self, encoded: EncodedMeta, commit: Commit) -> CreatedSession:
        session_id, records = encoded.meta.session_id, self._values.encode_records(commit)
        prepared = prepare_first_commit(commit, session_id, self._rules, records)
        row, turn, result = await self._rows.create_committed(encoded, prepared, plan_commit)
        if result is None:
            return _created(row, created=False, commit=repeated_first_commit(prepared, turn))
        self._hints.notify(process=False, changed=session_id)
        return _created(row, created=True, commit=result)

    async def fork(
        self,
        source_session_id: str,
        new_session_id: str,
        *,
        node_id: str | None = None,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        owner: str | None = None,
        labels: dict[str, str] | None = None,
        metadata: JSONObject | None = None,
        expires_at_ms: int | None = None,
        retention: Retention | None = None,
    ) -> CreatedSession:
        given = GivenMeta(
            name=name,
            model=model,
            cwd=cwd,
            owner=owner,
            labels=labels,
            metadata=metadata,
            expires_at_ms=expires_at_ms,
            retention=retention,
        )
        prepared = prepare_fork(source_session_id, new_session_id, given, node_id=node_id)
        row, created = await self._rows.fork(prepared, partial(fork_point, prepared))
        return _created(row, created=True) if created else existing_fork(prepared, row)

    async def open(self, session_id: str) -> BoundSession | None:
        row = await self._rows.find(check_identifier("session_id", session_id))
        return None if row is None else self.handle(session_id)

    async def list(
        self,
        wanted: SessionFilter = SessionFilter(),
        *,
        order: SessionOrder = SessionOrder.CREATED,
        oldest_first: bool = False,
        with_head: bool = False,
        with_state: bool = False,
        with_counts: bool = False,
        with_checkpoint: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SessionPage:
        parts = PageParts(head=with_head, state=with_state, counts=with_counts, checkpoint=with_checkpoint)
        page = prepare_page(wanted, order=order, oldest_first=oldest_first, parts=parts, limit=limit, cursor=cursor)
        return await self._rows.page(page, partial(decode_page, page))

    async def ids(self, prefix: str = "", *, limit: int = 100, after: str | None = None) -> tuple[str, ...]:
        return tuple(await self._rows.ids(key_range(prefix, after, reverse=False), check_limit(limit)))

    async def changes(self, cursor: str | None = None, *, limit: int = 100) -> SessionChangePage:
        after = decode_session_cursor(cursor)
        feed = await self._rows.changes(after, check_limit(limit))
        gap = feed_gap(after, feed)
        if gap is not None:
            after, feed = START, await self._rows.changes(START, limit)
        return decode_changes(feed, after, limit, gap)

    async def changes_cursor(self) -> str:
        return encode_session_cursor(cursor_at(await self._rows.changes_end()))

    async def follow(self, cursor: str | None = None, *, limit: int = 100) -> AsyncIterator[SessionChangePage]:
        with self._hints.listen(by_session=True) as listener:
            while True:
                page = await self.changes(cursor, limit=limit)
                cursor = page.cursor
                if page.changes or page.gap is not None:
                    yield page
                if len(page.changes) < limit:
                    await _next_change(listener)

    async def delete_many(self, session_ids: Collection[str]) -> tuple[str, ...]:
        deleted = await self._rows.delete_many(check_identifiers("session_ids", session_ids))
        self._announce(deleted)
        return tuple(deleted)

    async def delete_expired(self, *, limit: int = 100) -> tuple[str, ...]:
        deleted = await self._rows.delete_expired(check_limit(limit))
        self._announce(deleted)
        return tuple(deleted)

    async def delete(self, session_id: str) -> bool:
        deleted = await self._rows.delete(check_identifier("session_id", session_id))
        self._announce([session_id])
        return deleted

    def handle(self, session_id: str) -> BoundSession:
        """Return a handle without checking that the session exists."""
        return BoundSession(
            self._rows, self._rules, self._values, self._hints, check_identifier("session_id", session_id)
        )

    def _announce(self, deleted: Collection[str]) -> None:
        """Give the hints of deletions: the sessions are gone, and what was tied to them may be ready now."""
        for session_id in deleted:
            # Nothing can be ready there, so that no worker is looked for.
            self._hints.notify(process=False, work=False, changed=session_id, later=True)
        if deleted:
            self._hints.notify(later=True)


class BoundSession:
    """A handle on one session; the contract is `lash.stores.session.Session`."""

    def __init__(
        self, rows: SessionRows, rules: CommitRules, values: RecordValues, hints: Hints, session_id: str
    ) -> None:
        self._rows = rows
        self._rules = rules
        self._values = values
        self._hints = hints
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        return self._session_id

    async def head(self) -> SessionHead | None:
        return decode_head(await self._rows.read(self._session_id))

    async def revision(self) -> int:
        return (await self._rows.read(self._session_id)).revision

    async def load(self, scope: ReadScope = ActivePath()) -> SessionRead | None:
        wanted = check_scope(scope)
        reached = wanted
        while True:
            reach = reached.last if isinstance(reached, ActivePath) else None
            read = await self._rows.load(self._session_id, reached, partial(decode_path, scope=wanted, reach=reach))
            if not isinstance(read, ShortPath):
                return read
            reached = msgspec.structs.replace(reached, last=read.last)

    async def raw_path(self, *, leaf_node_id: str | None = None, last: int | None = None) -> tuple[RawNode, ...]:
        scope = check_path(leaf_node_id, last)
        if leaf_node_id is None and last is not None and last <= self._rows.longest_tail:
            tail = raw_tail(await self._rows.tail(self._session_id, last, raw_piece), last)
            if tail is not None:
                return tail
        while True:
            decode = partial(decode_raw_path, last=last, reach=scope.last)
            nodes = await self._rows.path(self._session_id, scope, decode)
            if not isinstance(nodes, ShortPath):
                return nodes
            scope = msgspec.structs.replace(scope, last=nodes.last)

    async def node(self, node_id: str) -> Node | None:
        row = await self._rows.node(self._session_id, check_identifier("node_id", node_id))
        return None if row is None else decode_node(row)

    async def nodes(self, node_ids: Collection[str]) -> dict[str, Node]:
        wanted = check_identifiers("node_ids", node_ids)
        parts = await self._rows.nodes(self._session_id, wanted, graph_nodes)
        found = {node.node_id: node for part in parts for node in part}
        return {node_id: found[node_id] for node_id in wanted if node_id in found}

    async def children(self, node_id: str, *, after: str | None = None, limit: int = 100) -> tuple[Node, ...]:
        check_identifier("node_id", node_id)
        found = await self._rows.children(self._session_id, node_id, check_page(after, limit), graph_nodes)
        return self._begun(found, after)

    async def list_nodes(
        self, kind: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> tuple[Node, ...]:
        wanted, page = check_kind(kind), check_page(after, limit, newest_first=newest_first)
        return self._begun(await self._rows.list_nodes(self._session_id, wanted, page, graph_nodes), after)

    async def checkpoint(self, revision: int | None = None, *, turn_id: str | None = None) -> Checkpoint | None:
        wanted = await self._chosen_revision(revision, turn_id)
        return await self._rows.checkpoint(self._session_id, wanted, decode_checkpoint)

    async def checkpoint_manifest(
        self, revision: int | None = None, *, turn_id: str | None = None
    ) -> CheckpointManifest | None:
        wanted = await self._chosen_revision(revision, turn_id)
        return await self._rows.checkpoint_manifest(self._session_id, wanted, decode_manifest)

    async def turns(self, turn_ids: Collection[str]) -> dict[str, TurnRecord]:
        rows = await self._rows.turns(self._session_id, check_identifiers("turn_ids", turn_ids))
        return {row.turn_id: decode_turn(row) for row in rows}

    async def _chosen_revision(self, revision: int | None, turn_id: str | None) -> int | None:
        """Return the revision that is named, or that a turn published; 0, which has no checkpoint, without a record."""
        check_turn_choice(revision, turn_id)
        if turn_id is None:
            return revision
        row = await self._rows.turn(self._session_id, turn_id)
        return 0 if row is None else revision_of(turn_id, row)

    async def blob(self, ref: BlobRef) -> bytes:
        content = await self._rows.blob(self._session_id, check_ref("ref", ref), decode_component)
        if content is None:
            raise BlobNotFound(self._session_id, ref)
        return content

    async def commit(self, commit: Commit, *, work: bool = True) -> CommitResult:
        prepared = prepare_commit(commit, self._session_id, self._rules, self._values.encode_records(commit))
        with _named(self._session_id):
            result = await self._rows.commit(prepared, partial(plan_commit, prepared))
        self._hints.notify(process=False, work=work, changed=self._session_id)
        return result

    async def append(
        self, nodes: Sequence[Node], *, turn_id: str | None = None, often_read: bool = False
    ) -> AppendResult:
        prepared = prepare_append(nodes, self._session_id, turn_id, self._rules, often_read=often_read)
        with _named(self._session_id):
            result = await self._rows.append(prepared, partial(plan_append, prepared))
        self._hints.notify(process=False, changed=self._session_id)
        return result

    async def meta(self) -> SessionMeta:
        return decode_meta(await self._rows.meta(self._session_id))

    async def save_meta(self, meta: SessionMeta) -> None:
        await self._rows.change_meta(save_change(encode_meta(meta, self._session_id)))

    async def edit(
        self,
        *,
        name: str | UnsetType = UNSET,
        owner: str | None | UnsetType = UNSET,
        labels: dict[str, str] | UnsetType = UNSET,
        metadata: JSONObject | UnsetType = UNSET,
        expires_at_ms: int | None | UnsetType = UNSET,
        retention: Retention | None | UnsetType = UNSET,
    ) -> None:
        await self._rows.change_meta(
            edit_change(
                self._session_id,
                name=name,
                owner=owner,
                labels=labels,
                metadata=metadata,
                expires_at_ms=expires_at_ms,
                retention=retention,
            )
        )

    async def tombstone(self, node_ids: Collection[str]) -> int:
        wanted = check_identifiers("node_ids", node_ids)
        return await self._rows.tombstone(self._session_id, wanted, partial(require_removable, self._session_id))

    async def erase(self, node_ids: Collection[str], *, fence: LeaseFence | None = None) -> int:
        prepared = prepare_erasure(self._session_id, node_ids, fence, self._rules.retention)
        erased = await self._rows.erase(prepared, partial(plan_erasure, prepared))
        self._hints.notify(process=False, changed=self._session_id)
        return erased

    async def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        remove = self._rows.removed_count if dry_run else self._rows.vacuum
        return VacuumReport(removed_node_count=await remove(self._session_id))

    def _begun(self, page: tuple[Node, ...] | None, after: str | None) -> tuple[Node, ...]:
        """Return the page, or raise NodeNotFound if the session has no node with which it begins."""
        if page is None:
            raise NodeNotFound(self._session_id, str(after))
        return page


async def _next_change(listener: HintListener) -> None:
    """Wait until a session may have changed, or for the time between two polls."""
    end = time.monotonic() + _POLL_S
    while (left := end - time.monotonic()) > 0:
        if (await listener.wait(left)).changed != NO_TAGS:
            await asyncio.sleep(_GATHER_S)
            return


def _created(row: MetaRow, *, created: bool, commit: CommitResult | None = None) -> CreatedSession:
    return CreatedSession(meta=decode_meta(row), revision=row.revision, created=created, commit=commit)


@contextmanager
def _named(session_id: str) -> Iterator[None]:
    """Name the session in an error about its rows; the database does not, for instance if an index cannot read one."""
    try:
        yield
    except CorruptData as error:
        if repr(session_id) in str(error):
            raise
        raise CorruptData(f"session {session_id!r}: {error}; lash db check lists what is damaged") from error
