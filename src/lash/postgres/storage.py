"""A storage in one schema of a PostgreSQL database."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from lash.backend.activity import Activities
from lash.backend.artifact import Artifacts
from lash.backend.attachment.attachment import Attachments
from lash.backend.effect import Effects
from lash.backend.lease import Leases
from lash.backend.maintenance import StorageMaintenance
from lash.backend.process.event import Events
from lash.backend.process.grant import Grants
from lash.backend.process.lease import ProcessLeases
from lash.backend.process.process import Processes
from lash.backend.queue import Queue
from lash.backend.session import BoundSession, Sessions
from lash.backend.session_waiter import SharedSessionWaiter
from lash.backend.table_rows import MovableRows
from lash.backend.trigger.emit import Occurrences
from lash.backend.trigger.schedule import Schedules
from lash.backend.trigger.trigger import Triggers
from lash.backend.wait import Waits
from lash.backend.waiter import SharedProcessWaiter
from lash.backend.work import Work
from lash.model.maintenance import StorageReport
from lash.model.session.session import Durability
from lash.plan.session.commit import CommitRules
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database, StatementHook
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.hints import PostgresHints
from lash.postgres.process_batches import ProcessBatches
from lash.postgres.rows.activity import PostgresActivityRows
from lash.postgres.rows.artifact import PostgresArtifactRows
from lash.postgres.rows.attachment import PostgresAttachmentManifest, PostgresBytes
from lash.postgres.rows.effect import PostgresEffectRows
from lash.postgres.rows.lease import PostgresLeaseRows
from lash.postgres.rows.maintenance import PostgresMaintenanceRows
from lash.postgres.rows.process.event import PostgresEventRows
from lash.postgres.rows.process.grant import PostgresGrantRows
from lash.postgres.rows.process.lease import PostgresProcessLeaseRows
from lash.postgres.rows.process.process import PostgresProcessRows
from lash.postgres.rows.queue.claim import PostgresClaimRows
from lash.postgres.rows.queue.dead_letter import PostgresDeadLetterRows
from lash.postgres.rows.queue.queue import PostgresQueueRows
from lash.postgres.rows.session.reply import PostgresReplyRows
from lash.postgres.rows.session.session import PostgresSessionRows
from lash.postgres.rows.table_rows import PostgresRawRows
from lash.postgres.rows.trigger.emit import PostgresOccurrenceRows
from lash.postgres.rows.trigger.schedule import PostgresScheduleRows
from lash.postgres.rows.trigger.trigger import PostgresTriggerRows
from lash.postgres.rows.wait import PostgresWaitRows
from lash.postgres.rows.work import PostgresWorkRows
from lash.postgres.schema import prepare_schema
from lash.sqlkit.queries import load_queries
from lash.stores.attachment import ByteStore

if TYPE_CHECKING:
    import asyncpg


class PostgresStorage:
    """Everything in one PostgreSQL schema; the contract is `lash.stores.storage.Storage`."""

    def __init__(self, database: Database, rules: CommitRules, attachment_bytes: ByteStore | None) -> None:
        """Build the stores on an open database; use `open`."""
        self._database = database
        self.hints = PostgresHints(database)
        self.sessions = Sessions(PostgresSessionRows(database), rules, self.hints)
        self.leases = Leases(PostgresLeaseRows(database), self.hints)
        self.maintenance = StorageMaintenance(PostgresMaintenanceRows(database))
        self.rows = MovableRows(PostgresRawRows(database))
        self.queue = Queue(
            PostgresQueueRows(database), PostgresClaimRows(database), PostgresDeadLetterRows(database), self.hints
        )
        cache, batches = ProcessCache(), ProcessBatches(database)
        events = PostgresEventRows(database, cache, batches)
        self.processes = Processes(PostgresProcessRows(database, cache), events, self.hints)
        self.events = Events(events, self.hints)
        self.waiter = SharedProcessWaiter(self.events, self.processes, self.hints)
        self.process_leases = ProcessLeases(
            PostgresProcessLeaseRows(database, cache, batches), events, self.hints, self.waiter
        )
        self.effects = Effects(PostgresEffectRows(database, cache), self.hints)
        self.work = Work(PostgresWorkRows(database, cache))
        self.waits = Waits(PostgresWaitRows(database), self.waiter.changes, self.hints)
        self.schedules = Schedules(PostgresScheduleRows(database), self.hints)
        self.grants = Grants(PostgresGrantRows(database, cache))
        self.activity = Activities(PostgresActivityRows(database), self.hints)
        self.session_waiter = SharedSessionWaiter(PostgresReplyRows(database), self.activity, self.hints)
        self.triggers = Triggers(PostgresTriggerRows(database))
        self.occurrences = Occurrences(PostgresOccurrenceRows(database), self.hints)
        self.artifacts = Artifacts(PostgresArtifactRows(database), rules.compression)
        self.attachments = Attachments(
            PostgresAttachmentManifest(database),
            attachment_bytes or PostgresBytes(database, rules.compression),
            self.durability,
        )

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        migrate: bool,
        rules: CommitRules,
        attachment_bytes: ByteStore | None = None,
        pool: asyncpg.Pool[asyncpg.Record] | None = None,
        on_statement: StatementHook | None = None,
    ) -> Self:
        """Open the schema that the URL names, on a pool of its own or on the given one."""
        options = PostgresOptions.from_url(url)
        queries = load_queries("lash.postgres.sql", schema=options.schema)
        database = await Database.open(options, queries=queries, pool=pool, on_statement=on_statement)
        try:
            await prepare_schema(database, migrate=migrate)
        except BaseException:
            await database.close()
            raise
        return cls(database, rules, attachment_bytes)

    @property
    def durability(self) -> Durability:
        return Durability.DURABLE

    def session(self, session_id: str) -> BoundSession:
        return self.sessions.handle(session_id)

    async def report(self) -> StorageReport:
        return await self.maintenance.report()

    async def close(self) -> None:
        self._database.check_loop()
        await self.waiter.close()
        await self.session_waiter.close()
        await self.hints.close()
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
