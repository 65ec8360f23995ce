"""A storage in one SQLite file, or in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl

from lash.backend.attachment.sealed import sealed_bytes
from lash.backend.seal_mark import check_mark
from lash.backend.storage import BackendRows, BackendStorage
from lash.base.clock import Clock
from lash.base.seal import PLAIN, Seals
from lash.errors import ConfigError
from lash.model.session.session import Durability
from lash.plan.session.commit import CommitRules
from lash.sqlite.engine.database import Database
from lash.sqlite.engine.options import SQLiteOptions, StatementHook
from lash.sqlite.hints import SQLiteHints
from lash.sqlite.rows.act import SQLiteActRows
from lash.sqlite.rows.activity import SQLiteActivityRows
from lash.sqlite.rows.artifact import SQLiteArtifactRows
from lash.sqlite.rows.attachment import SQLiteAttachmentManifest, SQLiteBytes
from lash.sqlite.rows.effect import SQLiteEffectRows
from lash.sqlite.rows.lease import SQLiteLeaseRows
from lash.sqlite.rows.limit import SQLiteLimitRows
from lash.sqlite.rows.maintenance import SQLiteMaintenanceRows
from lash.sqlite.rows.process.event import SQLiteEventRows
from lash.sqlite.rows.process.grant import SQLiteGrantRows
from lash.sqlite.rows.process.lease import SQLiteProcessLeaseRows
from lash.sqlite.rows.process.process import SQLiteProcessRows
from lash.sqlite.rows.queue.claim import SQLiteClaimRows
from lash.sqlite.rows.queue.dead_letter import SQLiteDeadLetterRows
from lash.sqlite.rows.queue.queue import SQLiteQueueRows
from lash.sqlite.rows.record import SQLiteRecordRows
from lash.sqlite.rows.seal import SQLiteSealRows
from lash.sqlite.rows.session.reply import SQLiteReplyRows
from lash.sqlite.rows.session.session import SQLiteSessionRows
from lash.sqlite.rows.session.usage import SQLiteUsageRows
from lash.sqlite.rows.table_rows import SQLiteRawRows
from lash.sqlite.rows.trigger.emit import SQLiteOccurrenceRows
from lash.sqlite.rows.trigger.schedule import SQLiteScheduleRows
from lash.sqlite.rows.trigger.trigger import SQLiteTriggerRows
from lash.sqlite.rows.wait import SQLiteWaitRows
from lash.sqlite.rows.work import SQLiteWorkRows
from lash.sqlite.rows.worker import SQLiteWorkerRows
from lash.sqlite.schema import MIGRATIONS, SchemaKeeper
from lash.sqlkit.migrations import last_number, load_migrations, pending_error
from lash.sqlkit.queries import load_queries
from lash.stores.attachment import ByteStore

_OPTIONS: Final = {"synchronous": str, "busy_timeout_ms": int, "checkpoint_pages": int}
"""The options of a URL; the rest of `SQLiteOptions` is for tests and benchmarks."""


class SQLiteStorage(BackendStorage):
    """All stores of one SQLite database; the contract is `lash.stores.storage.Storage`."""

    hints: SQLiteHints

    def __init__(self, database: Database, rules: CommitRules, attachment_bytes: ByteStore | None) -> None:
        """Build the stores on an open database; use `open`."""
        hints = SQLiteHints(database)
        content = sealed_bytes(attachment_bytes, database.seals) or SQLiteBytes(database, rules.compression)
        durability = Durability.DURABLE if database.durable else Durability.INLINE
        super().__init__(_rows(database, content), hints, rules, durability, database.seals)
        self._database = database

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
        seals: Seals = PLAIN,
    ) -> Self:
        """Open the file, or a new database in memory when ``path`` is None."""
        if path is not None and not migrate:
            await asyncio.to_thread(_refuse_missing, path)
        queries = load_queries("lash.sqlite.sql")
        keeper = SchemaKeeper(queries, clock, migrate=migrate)
        database = await Database.open(
            path,
            queries=queries,
            prepare=keeper.prepare,
            options=options,
            clock=clock,
            on_statement=on_statement,
            seals=seals,
        )
        try:
            await check_mark(SQLiteSealRows(database), seals)
        except BaseException:
            await database.close()
            raise
        return cls(database, rules, attachment_bytes)

    async def close(self) -> None:
        await super().close()
        await self._database.close()


def _rows(database: Database, attachment_bytes: ByteStore) -> BackendRows:
    return BackendRows(
        activity=SQLiteActivityRows(database),
        acts=SQLiteActRows(database),
        artifacts=SQLiteArtifactRows(database),
        attachment_bytes=attachment_bytes,
        attachments=SQLiteAttachmentManifest(database),
        claims=SQLiteClaimRows(database),
        dead_letters=SQLiteDeadLetterRows(database),
        effects=SQLiteEffectRows(database),
        events=SQLiteEventRows(database),
        grants=SQLiteGrantRows(database),
        leases=SQLiteLeaseRows(database),
        limits=SQLiteLimitRows(database),
        maintenance=SQLiteMaintenanceRows(database),
        occurrences=SQLiteOccurrenceRows(database),
        process_leases=SQLiteProcessLeaseRows(database),
        processes=SQLiteProcessRows(database),
        queue=SQLiteQueueRows(database),
        raw=SQLiteRawRows(database),
        records=SQLiteRecordRows(database),
        replies=SQLiteReplyRows(database),
        schema=last_number(MIGRATIONS),
        seal=SQLiteSealRows(database),
        schedules=SQLiteScheduleRows(database),
        sessions=SQLiteSessionRows(database),
        triggers=SQLiteTriggerRows(database),
        usage=SQLiteUsageRows(database),
        waits=SQLiteWaitRows(database),
        work=SQLiteWorkRows(database),
        workers=SQLiteWorkerRows(database),
    )


def _refuse_missing(path: str) -> None:
    """Raise PendingMigrations for a missing file, because opening it would create it."""
    if not Path(path).exists():
        raise pending_error(0, load_migrations(MIGRATIONS))


def options_from_query(query: str) -> SQLiteOptions:
    """Return the options in the query string of a URL, or raise ConfigError."""
    given: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        convert = _OPTIONS.get(key)
        if convert is None:
            raise ConfigError(f"unknown option {key!r} of a sqlite URL; expected one of {', '.join(_OPTIONS)}")
        try:
            given[key] = convert(text)
        except ValueError:
            raise ConfigError(f"{key}: expected a number, got {text!r}") from None
    return SQLiteOptions(**given)
