"""A storage in one SQLite file, or in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl

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
from lash.base.clock import Clock
from lash.errors import ConfigError
from lash.model.maintenance import StorageReport
from lash.model.session.session import Durability
from lash.plan.session.commit import CommitRules
from lash.sqlite.engine.database import Database
from lash.sqlite.engine.options import SQLiteOptions, StatementHook
from lash.sqlite.hints import SQLiteHints
from lash.sqlite.rows.activity import SQLiteActivityRows
from lash.sqlite.rows.artifact import SQLiteArtifactRows
from lash.sqlite.rows.attachment import SQLiteAttachmentManifest, SQLiteBytes
from lash.sqlite.rows.effect import SQLiteEffectRows
from lash.sqlite.rows.lease import SQLiteLeaseRows
from lash.sqlite.rows.maintenance import SQLiteMaintenanceRows
from lash.sqlite.rows.process.event import SQLiteEventRows
from lash.sqlite.rows.process.grant import SQLiteGrantRows
from lash.sqlite.rows.process.lease import SQLiteProcessLeaseRows
from lash.sqlite.rows.process.process import SQLiteProcessRows
from lash.sqlite.rows.queue.claim import SQLiteClaimRows
from lash.sqlite.rows.queue.dead_letter import SQLiteDeadLetterRows
from lash.sqlite.rows.queue.queue import SQLiteQueueRows
from lash.sqlite.rows.session.reply import SQLiteReplyRows
from lash.sqlite.rows.session.session import SQLiteSessionRows
from lash.sqlite.rows.table_rows import SQLiteRawRows
from lash.sqlite.rows.trigger.emit import SQLiteOccurrenceRows
from lash.sqlite.rows.trigger.schedule import SQLiteScheduleRows
from lash.sqlite.rows.trigger.trigger import SQLiteTriggerRows
from lash.sqlite.rows.wait import SQLiteWaitRows
from lash.sqlite.rows.work import SQLiteWorkRows
from lash.sqlite.schema import MIGRATIONS, SchemaKeeper
from lash.sqlkit.migrations import load_migrations, pending_error
from lash.sqlkit.queries import load_queries
from lash.stores.attachment import ByteStore

_OPTIONS: Final = {"synchronous": str, "busy_timeout_ms": int, "checkpoint_pages": int}
"""What a URL may set; the rest of `SQLiteOptions` is for tests and benchmarks."""


class SQLiteStorage:
    """Everything on one SQLite database; the contract is `lash.stores.storage.Storage`."""

    def __init__(self, database: Database, rules: CommitRules, attachment_bytes: ByteStore | None) -> None:
        """Build the stores on an open database; use `open`."""
        self._database = database
        self.hints = SQLiteHints(database)
        self.sessions = Sessions(SQLiteSessionRows(database), rules, self.hints)
        self.leases = Leases(SQLiteLeaseRows(database), self.hints)
        self.maintenance = StorageMaintenance(SQLiteMaintenanceRows(database))
        self.rows = MovableRows(SQLiteRawRows(database))
        self.queue = Queue(
            SQLiteQueueRows(database), SQLiteClaimRows(database), SQLiteDeadLetterRows(database), self.hints
        )
        events = SQLiteEventRows(database)
        self.processes = Processes(SQLiteProcessRows(database), events, self.hints)
        self.events = Events(events, self.hints)
        self.waiter = SharedProcessWaiter(self.events, self.processes, self.hints)
        self.process_leases = ProcessLeases(SQLiteProcessLeaseRows(database), events, self.hints, self.waiter)
        self.grants = Grants(SQLiteGrantRows(database))
        self.effects = Effects(SQLiteEffectRows(database), self.hints)
        self.activity = Activities(SQLiteActivityRows(database), self.hints)
        self.session_waiter = SharedSessionWaiter(SQLiteReplyRows(database), self.activity, self.hints)
        self.work = Work(SQLiteWorkRows(database))
        self.waits = Waits(SQLiteWaitRows(database), self.waiter.changes, self.hints)
        self.triggers = Triggers(SQLiteTriggerRows(database))
        self.occurrences = Occurrences(SQLiteOccurrenceRows(database), self.hints)
        self.schedules = Schedules(SQLiteScheduleRows(database), self.hints)
        self.artifacts = Artifacts(SQLiteArtifactRows(database), rules.compression)
        self.attachments = Attachments(
            SQLiteAttachmentManifest(database),
            attachment_bytes or SQLiteBytes(database, rules.compression),
            self.durability,
        )

    @classmethod
    async def open(
        cls,
        path: str | None,
        *,
        migrate: bool,
        rules: CommitRules,
        attachment_bytes: ByteStore | None = None,
        options: SQLiteOptions,
        clock: Clock,
        on_statement: StatementHook | None = None,
    ) -> Self:
        """Open the file, or a new database in memory when ``path`` is None."""
        if path is not None and not migrate:
            await asyncio.to_thread(_refuse_missing, path)
        queries = load_queries("lash.sqlite.sql")
        keeper = SchemaKeeper(queries, clock, migrate=migrate)
        database = await Database.open(
            path, queries=queries, prepare=keeper.prepare, options=options, clock=clock, on_statement=on_statement
        )
        return cls(database, rules, attachment_bytes)

    @property
    def durability(self) -> Durability:
        return Durability.DURABLE if self._database.durable else Durability.INLINE

    def session(self, session_id: str) -> BoundSession:
        return self.sessions.handle(session_id)

    async def report(self) -> StorageReport:
        return await self.maintenance.report()

    async def close(self) -> None:
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


def _refuse_missing(path: str) -> None:
    """Raise PendingMigrations for a file that is not there: opening it would create it."""
    if not Path(path).exists():
        raise pending_error(0, load_migrations(MIGRATIONS))


def options_from_query(query: str) -> SQLiteOptions:
    """Return the options that the query string of a URL sets."""
    given: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        convert = _OPTIONS.get(key)
        if convert is None:
            raise ConfigError(f"{key!r} is no option of a sqlite URL; there are {', '.join(_OPTIONS)}")
        try:
            given[key] = convert(text)
        except ValueError:
            raise ConfigError(f"{key} must be a number, not {text!r}") from None
    return SQLiteOptions(**given)
