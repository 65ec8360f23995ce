"""Sessions on PostgreSQL."""

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
from lash.plan.session.checkpoint import ComponentRow, check_ref, decode_checkpoint, decode_component
from lash.plan.session.commit import CommitRules, prepare_commit
from lash.plan.session.fork import prepare_fork
from lash.plan.session.node import WHOLE_PATH, check_node_ids, decode_node
from lash.plan.session.session import (
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
    new_head,
    new_meta,
    require_removable,
)
from lash.postgres.cache import HeadCache
from lash.postgres.commit.writer import CommitWriter
from lash.postgres.engine.database import Database, Transaction
from lash.postgres.rows.session.commit import run_commit
from lash.postgres.rows.session.fork import reclaim_graphs, recount, run_fork
from lash.postgres.rows.session.lookup import missing
from lash.postgres.rows.session.rows import (
    BuriedAnswer,
    CheckpointAnswer,
    LoadAnswer,
    LockAnswer,
    NodeAnswer,
    ReadAnswer,
    TiesAnswer,
)
from lash.postgres.rows.trigger.trigger import delete_subscriptions
from lash.sqlkit.rows import Flag, Number
from lash.stores.hints import Hints


class PostgresSessionStore:
    """The sessions of one PostgreSQL storage; the contract is `lash.stores.session.SessionStore`."""

    def __init__(self, database: Database, rules: CommitRules, hints: Hints) -> None:
        self._database = database
        self._rules = rules
        self._hints = hints
        self._heads = HeadCache()
        self._writer = CommitWriter(database)

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
        arguments = (session_id, meta.name, meta.model, meta.cwd, encode_meta(meta, session_id))
        row = await self._database.write_one(MetaRow, "session_create", *arguments, repeatable=True)
        if row is None:
            existing = await self._database.read_one(MetaRow, "session_meta", session_id)
            if existing is None:
                raise await missing(self._database, session_id)
            return CreatedSession(meta=decode_meta(existing), revision=existing.revision, created=False)
        self._heads.remember(session_id, new_head(row))
        return CreatedSession(meta=decode_meta(row), revision=row.revision, created=True)

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
        return await run_fork(self._database, prepared)

    async def open(self, session_id: str) -> PostgresSession | None:
        check_identifier("session_id", session_id)
        row = await self._database.read_one(MetaRow, "session_meta", session_id)
        return None if row is None else self.handle(session_id)

    async def list(self, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        size, before = check_limit(limit), decode_cursor(cursor)
        return decode_page(await self._database.read_all(MetaRow, "session_page", before, size + 1), size)

    async def delete(self, session_id: str) -> bool:
        check_identifier("session_id", session_id)
        self._heads.forget(session_id)
        deleted = await self._delete(session_id)
        self._hints.notify(changed=session_id)
        return deleted

    def handle(self, session_id: str) -> PostgresSession:
        check_identifier("session_id", session_id)
        return PostgresSession(self._database, self._rules, self._heads, self._writer, self._hints, session_id)

    async def _delete(self, session_id: str) -> bool:
        async with self._database.transaction() as transaction:
            # The order of all nouns. From here on nobody makes a schedule or a subscription of the session: a statement
            # of its own, so that the next ones see what others made before they let us in.
            await transaction.run("trigger_hold_session", session_id)
            await self._untie(transaction, session_id)
            # Processes before the session, as an append that wakes it takes its locks; its wakes after it, as a commit.
            held = await transaction.one(LockAnswer, "session_lock", session_id)
            await transaction.run("event_lose_session", session_id)
            if held is None:
                return False
            buried = await transaction.one(BuriedAnswer, "session_bury", held.session_key, held.fencing)
            if buried is None:
                return False
            keys = [held.session_key, *buried.owner_keys] if buried.has_heirs else buried.owner_keys
            await reclaim_graphs(transaction, self._database.options.schema, keys)
            return True

    async def _untie(self, transaction: Transaction, session_id: str) -> None:
        """Take a session apart from its schedules, subscriptions and processes, of which most have none."""
        ties = await transaction.one(TiesAnswer, "session_ties", session_id)
        if ties is None or ties.has_declarations:
            # Schedules before subscriptions, as firing one holds it and then the subscriptions.
            await transaction.run("schedule_delete_session", session_id)
            # Subscriptions before processes: an emission under way holds them, so that what it starts is seen below.
            await delete_subscriptions(transaction, session_id)
        if ties is None or ties.has_declarations or ties.has_processes:
            await transaction.run("grant_detach", session_id)


class PostgresSession:
    """A handle on one session; the contract is `lash.stores.session.Session`."""

    def __init__(
        self,
        database: Database,
        rules: CommitRules,
        heads: HeadCache,
        writer: CommitWriter,
        hints: Hints,
        session_id: str,
    ) -> None:
        self._database = database
        self._rules = rules
        self._heads = heads
        self._writer = writer
        self._hints = hints
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        return self._session_id

    async def head(self) -> SessionHead | None:
        return decode_head(await self._read_row())

    async def revision(self) -> int:
        return (await self._read_row()).revision

    async def load(self, scope: ReadScope = ActivePath()) -> SessionRead | None:
        wanted = check_scope(scope)
        path = ActivePath() if isinstance(wanted, FullGraph) else wanted
        answer = await self._database.read_one(
            LoadAnswer,
            "session_load",
            self._session_id,
            isinstance(wanted, FullGraph),
            path.leaf_node_id,
            WHOLE_PATH if path.last is None else path.last,
        )
        if answer is None:
            raise await missing(self._database, self._session_id)
        self._heads.remember(self._session_id, answer.head)
        head = decode_head(answer.read)
        if head is None:
            return None
        return decode_read(
            head,
            wanted,
            inherited=answer.inherited,
            nodes=answer.nodes,
            frames=answer.frames,
            checkpoint=answer.checkpoint,
            components=answer.components,
            totals=answer.totals,
        )

    async def node(self, node_id: str) -> Node | None:
        check_identifier("node_id", node_id)
        answer = await self._database.read_one(NodeAnswer, "node_one", self._session_id, node_id)
        if answer is None:
            raise await missing(self._database, self._session_id)
        return decode_node(answer.nodes[0]) if answer.nodes else None

    async def checkpoint(self, revision: int | None = None) -> Checkpoint | None:
        if revision is not None:
            check_integer("revision", revision, at_least=0)
        answer = await self._database.read_one(CheckpointAnswer, "checkpoint_load", self._session_id, revision)
        if answer is None:
            raise await missing(self._database, self._session_id)
        return None if answer.checkpoint is None else decode_checkpoint(answer.checkpoint, answer.components)

    async def blob(self, ref: BlobRef) -> bytes:
        row = await self._database.read_one(ComponentRow, "checkpoint_blob", self._session_id, check_ref("ref", ref))
        if row is None:
            await self.meta()
            raise BlobNotFound(self._session_id, ref)
        return decode_component(row)

    async def commit(self, commit: Commit) -> CommitResult:
        prepared = prepare_commit(commit, self._session_id, self._rules)
        result = await run_commit(self._database, self._writer, self._heads, prepared)
        self._hints.notify(process=False, changed=self._session_id)
        return result

    async def meta(self) -> SessionMeta:
        row = await self._database.read_one(MetaRow, "session_meta", self._session_id)
        if row is None:
            raise await missing(self._database, self._session_id)
        return decode_meta(row)

    async def save_meta(self, meta: SessionMeta) -> None:
        relation = encode_meta(meta, self._session_id)
        arguments = (self._session_id, meta.name, meta.created_at_ms, meta.model, meta.cwd, relation)
        saved = await self._database.write_one(Flag, "session_save_meta", *arguments, repeatable=True)
        if saved is None:
            raise await missing(self._database, self._session_id)

    async def tombstone(self, node_ids: Collection[str]) -> int:
        wanted = check_node_ids(node_ids)
        async with self._database.transaction() as transaction:
            # The lock keeps the active path, and with it the answer to what may go, until the end.
            session = await transaction.one(Number, "node_lock_session", self._session_id)
            if session is not None:
                return await self._tombstone(transaction, session.number, wanted)
        raise await missing(self._database, self._session_id)

    async def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        if dry_run:
            removed = await self._database.read_one(Number, "node_removed_count", self._session_id)
        else:
            removed = await self._database.write_one(Number, "node_vacuum", self._session_id, repeatable=True)
        if removed is None:
            raise await missing(self._database, self._session_id)
        return VacuumReport(removed_node_count=removed.number)

    async def _read_row(self) -> ReadRow:
        answer = await self._database.read_one(ReadAnswer, "session_read", self._session_id)
        if answer is None:
            raise await missing(self._database, self._session_id)
        self._heads.remember(self._session_id, answer.head)
        return answer.read

    async def _tombstone(self, transaction: Transaction, session_key: int, wanted: tuple[str, ...]) -> int:
        held = await transaction.all(HeldNode, "node_held", session_key, list(wanted))
        require_removable(self._session_id, held)
        removed = await transaction.run("node_tombstone", session_key, list(wanted))
        if removed:
            await recount(transaction, session_key)
        return removed
