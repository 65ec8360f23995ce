"""Sessions on SQLite."""

from __future__ import annotations

from collections.abc import Collection

from lash.base.compression import BlobRef
from lash.base.limits import check_identifier, check_integer
from lash.errors import BlobNotFound
from lash.model.session.checkpoint import Checkpoint
from lash.model.session.commit import Commit, CommitResult
from lash.model.session.node import Node
from lash.model.session.session import (
    ActivePath,
    CreatedSession,
    FullGraph,
    ReadScope,
    RootRelation,
    SessionHead,
    SessionMeta,
    SessionPage,
    SessionRead,
    SessionRelation,
    VacuumReport,
)
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow, check_ref, decode_checkpoint, decode_component
from lash.plan.session.commit import CommitRules, prepare_commit
from lash.plan.session.fork import prepare_fork
from lash.plan.session.frame import FrameRow
from lash.plan.session.node import WHOLE_PATH, PathRow, check_node_ids, decode_node
from lash.plan.session.session import (
    HeadRow,
    HeldNode,
    MetaRow,
    ReadRow,
    check_limit,
    check_scope,
    decode_cursor,
    decode_head,
    decode_meta,
    decode_page,
    decode_read,
    encode_meta,
    new_meta,
    require_removable,
)
from lash.plan.session.usage import UsageRow
from lash.sqlite.engine.database import Database, Reader, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.process.grant import detach_session
from lash.sqlite.rows.session.commit import apply_commit
from lash.sqlite.rows.session.fork import apply_fork, graph_owners, insert_session, reclaim_graphs, recount
from lash.sqlite.rows.session.lookup import find_head, find_meta, missing
from lash.sqlite.rows.trigger.schedule import delete_session_schedules
from lash.sqlite.rows.trigger.trigger import delete_subscriptions
from lash.sqlkit.rows import Number
from lash.stores.hints import Hints


class SQLiteSessionStore:
    """The sessions of one SQLite storage; the contract is `lash.stores.session.SessionStore`."""

    def __init__(self, database: Database, rules: CommitRules, hints: Hints) -> None:
        self._database = database
        self._rules = rules
        self._hints = hints

    async def create(
        self,
        session_id: str,
        *,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
        relation: SessionRelation = RootRelation(),
    ) -> CreatedSession:
        meta = new_meta(session_id, name=name, model=model, cwd=cwd, relation=relation)
        stored_relation = encode_meta(meta, session_id)

        def body(transaction: Transaction) -> CreatedSession:
            created = insert_session(transaction, meta, stored_relation)
            row = find_meta(transaction, session_id)
            return CreatedSession(meta=decode_meta(row), revision=row.revision, created=created)

        return await self._database.write(body)

    async def fork(
        self,
        source_session_id: str,
        new_session_id: str,
        *,
        node_id: str | None = None,
        name: str | None = None,
        model: str = "",
        cwd: str | None = None,
    ) -> CreatedSession:
        prepared = prepare_fork(source_session_id, new_session_id, node_id=node_id, name=name, model=model, cwd=cwd)
        return await self._database.write(lambda transaction: apply_fork(transaction, prepared))

    async def open(self, session_id: str) -> SQLiteSession | None:
        check_identifier("session_id", session_id)
        row = self._database.read(lambda reader: reader.one(MetaRow, "session_meta", session_id=session_id))
        return None if row is None else self.handle(session_id)

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        size, before = check_limit(limit), decode_cursor(cursor)
        rows = await self._database.read_in_thread(
            lambda reader: reader.all(MetaRow, "session_page", before=before, limit=size + 1)
        )
        return decode_page(rows, size)

    async def delete(self, session_id: str) -> bool:
        check_identifier("session_id", session_id)

        def body(transaction: Transaction) -> bool:
            # The order of all nouns: schedules and subscriptions, so that nothing more is started; then the processes
            # that were; then the session, with which its effects, waits, queue and dead letters go.
            delete_session_schedules(transaction, session_id)
            delete_subscriptions(transaction, session_id)
            detach_session(transaction, session_id)
            head = transaction.one(HeadRow, "session_head", session_id=session_id)
            if head is None:
                return False
            touched = [head.session_key, *graph_owners(transaction, head.session_key)]
            transaction.run("session_bury", session_id=session_id, now_ms=transaction.now_ms)
            transaction.run("session_delete", session_id=session_id)
            reclaim_graphs(transaction, touched)
            return True

        deleted = await self._database.write(body)
        self._hints.notify(changed=session_id)
        return deleted

    def handle(self, session_id: str) -> SQLiteSession:
        return SQLiteSession(self._database, self._rules, self._hints, check_identifier("session_id", session_id))


class SQLiteSession:
    """A handle on one session; the contract is `lash.stores.session.Session`."""

    def __init__(self, database: Database, rules: CommitRules, hints: Hints, session_id: str) -> None:
        self._database = database
        self._rules = rules
        self._hints = hints
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        return self._session_id

    async def head(self) -> SessionHead | None:
        return decode_head(self._database.read(self._read_row))

    async def revision(self) -> int:
        return self._database.read(self._read_row).revision

    async def load(self, scope: ReadScope = ActivePath()) -> SessionRead | None:
        wanted = check_scope(scope)
        if isinstance(wanted, ActivePath) and wanted.last is not None:
            return self._database.read(lambda reader: self._load(reader, wanted))
        return await self._database.read_in_thread(lambda reader: self._load(reader, wanted))

    async def node(self, node_id: str) -> Node | None:
        check_identifier("node_id", node_id)

        def body(reader: Reader) -> PathRow | None:
            key = self._read_row(reader).session_key
            return reader.one(PathRow, "node_one", session_key=key, node_id=node_id)

        row = self._database.read(body)
        return None if row is None else decode_node(row)

    async def checkpoint(self, revision: int | None = None) -> Checkpoint | None:
        if revision is not None:
            check_integer("revision", revision, at_least=0)

        def body(reader: Reader) -> Checkpoint | None:
            row = self._read_row(reader)
            wanted = row.revision if revision is None else revision
            found = reader.one(CheckpointRow, "checkpoint_at", session_key=row.session_key, revision=wanted)
            return None if found is None else decode_checkpoint(found, _components(reader, row.session_key, wanted))

        return await self._database.read_in_thread(body)

    async def blob(self, ref: BlobRef) -> bytes:
        check_ref("ref", ref)

        def body(reader: Reader) -> bytes:
            self._read_row(reader)
            row = reader.one(ComponentRow, "checkpoint_blob", session_id=self._session_id, hash=ref)
            if row is None:
                raise BlobNotFound(self._session_id, ref)
            return decode_component(row)

        return await self._database.read_in_thread(body)

    async def commit(self, commit: Commit) -> CommitResult:
        prepared = prepare_commit(commit, self._session_id, self._rules)
        write = self._database.write_briefly if prepared.is_brief else self._database.write
        result = await write(lambda transaction: apply_commit(transaction, prepared))
        self._hints.notify(process=False, changed=self._session_id)
        return result

    async def meta(self) -> SessionMeta:
        return decode_meta(self._database.read(lambda reader: find_meta(reader, self._session_id)))

    async def save_meta(self, meta: SessionMeta) -> None:
        relation = encode_meta(meta, self._session_id)

        def body(transaction: Transaction) -> None:
            find_meta(transaction, self._session_id)
            transaction.run(
                "session_save_meta",
                session_id=self._session_id,
                name=meta.name,
                created_at_ms=meta.created_at_ms,
                model=meta.model,
                cwd=meta.cwd,
                relation=relation,
            )

        await self._database.write(body)

    async def tombstone(self, node_ids: Collection[str]) -> int:
        wanted = check_node_ids(node_ids)

        def body(transaction: Transaction) -> int:
            head = find_head(transaction, self._session_id)
            key, ids = head.session_key, json_array(wanted)
            require_removable(self._session_id, transaction.all(HeldNode, "node_held", session_key=key, node_ids=ids))
            removed = transaction.run("node_tombstone", session_key=key, node_ids=ids, now_ms=transaction.now_ms)
            if removed:
                recount(transaction, key)
            return removed

        return await self._database.write(body)

    async def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        if dry_run:
            return VacuumReport(removed_node_count=self._database.read(self._removed_count))

        def body(transaction: Transaction) -> int:
            key = find_head(transaction, self._session_id).session_key
            transaction.run("node_close_segments", session_key=key)
            return transaction.run("node_vacuum", session_key=key)

        return VacuumReport(removed_node_count=await self._database.write(body))

    def _removed_count(self, reader: Reader) -> int:
        counted = reader.one(Number, "node_removed_count", session_id=self._session_id)
        if counted is None:
            raise missing(reader, self._session_id)
        return counted.number

    def _read_row(self, reader: Reader) -> ReadRow:
        row = reader.one(ReadRow, "session_read", session_id=self._session_id)
        if row is None:
            raise missing(reader, self._session_id)
        return row

    def _load(self, reader: Reader, scope: ReadScope) -> SessionRead | None:
        row = self._read_row(reader)
        head = decode_head(row)
        if head is None:
            return None
        key = row.session_key
        return decode_read(
            head,
            scope,
            inherited=_inherited_rows(reader, key, scope),
            nodes=_graph_rows(reader, key, head, scope),
            frames=reader.all(FrameRow, "frame_all", session_key=key),
            checkpoint=reader.one(CheckpointRow, "checkpoint_at", session_key=key, revision=head.revision),
            components=reader.all(ComponentRow, "checkpoint_current", session_key=key),
            totals=reader.all(UsageRow, "usage_totals", session_key=key),
        )


def _inherited_rows(reader: Reader, session_key: int, scope: ReadScope) -> list[PathRow]:
    """Return what a whole graph shows of other sessions; a path finds its way by itself."""
    return reader.all(PathRow, "node_inherited", session_key=session_key) if isinstance(scope, FullGraph) else []


def _graph_rows(reader: Reader, session_key: int, head: SessionHead, scope: ReadScope) -> list[PathRow]:
    if isinstance(scope, FullGraph):
        return reader.all(PathRow, "node_all", session_key=session_key)
    leaf = head.leaf_node_id if scope.leaf_node_id is None else scope.leaf_node_id
    last = WHOLE_PATH if scope.last is None else scope.last
    return reader.all(PathRow, "node_path", session_key=session_key, leaf_node_id=leaf, last=last)


def _components(reader: Reader, session_key: int, revision: int) -> list[ComponentRow]:
    return reader.all(ComponentRow, "checkpoint_components", session_key=session_key, revision=revision)
