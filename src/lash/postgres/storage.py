"""A storage in one schema of a PostgreSQL database."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Final, Self

from lash.backend.attachment.sealed import sealed_bytes
from lash.backend.seal_mark import check_mark
from lash.backend.storage import BackendRows, BackendStorage
from lash.base.seal import PLAIN, Seals
from lash.errors import CorruptData, StoreUnavailable
from lash.model.session.session import Durability
from lash.plan.session.commit import CommitRules
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database, StatementHook
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.password import Password
from lash.postgres.engine.room import ConnectionUse
from lash.postgres.engine.statement_watch import LockHolder
from lash.postgres.epoch import check_epoch
from lash.postgres.hints import PostgresHints
from lash.postgres.process_batches import ProcessBatches
from lash.postgres.rows.act import PostgresActRows
from lash.postgres.rows.activity import PostgresActivityRows
from lash.postgres.rows.artifact import PostgresArtifactRows
from lash.postgres.rows.attachment import PostgresAttachmentManifest, PostgresBytes
from lash.postgres.rows.effect import PostgresEffectRows
from lash.postgres.rows.lease import PostgresLeaseRows
from lash.postgres.rows.limit import PostgresLimitRows
from lash.postgres.rows.maintenance import PostgresMaintenanceRows
from lash.postgres.rows.process.change import ChangeFeed
from lash.postgres.rows.process.event import PostgresEventRows
from lash.postgres.rows.process.grant import PostgresGrantRows
from lash.postgres.rows.process.lease import PostgresProcessLeaseRows
from lash.postgres.rows.process.process import PostgresProcessRows
from lash.postgres.rows.queue.claim import PostgresClaimRows
from lash.postgres.rows.queue.dead_letter import PostgresDeadLetterRows
from lash.postgres.rows.queue.queue import PostgresQueueRows
from lash.postgres.rows.record import PostgresRecordRows
from lash.postgres.rows.seal import PostgresSealRows
from lash.postgres.rows.session.reply import PostgresReplyRows
from lash.postgres.rows.session.session import PostgresSessionRows
from lash.postgres.rows.session.usage import PostgresUsageRows
from lash.postgres.rows.table_rows import PostgresRawRows
from lash.postgres.rows.trigger.emit import PostgresOccurrenceRows
from lash.postgres.rows.trigger.schedule import PostgresScheduleRows
from lash.postgres.rows.trigger.trigger import PostgresTriggerRows
from lash.postgres.rows.wait import PostgresWaitRows
from lash.postgres.rows.work import PostgresWorkRows
from lash.postgres.rows.worker import PostgresWorkerRows
from lash.postgres.schema import MIGRATIONS, prepare_schema
from lash.sqlkit.migrations import last_number
from lash.sqlkit.queries import load_queries
from lash.stores.attachment import ByteStore

if TYPE_CHECKING:
    import asyncpg

_LOG: Final = logging.getLogger("lash.postgres")


class PostgresStorage(BackendStorage):
    """All stores of one PostgreSQL schema; the contract is `lash.stores.storage.Storage`."""

    hints: PostgresHints

    def __init__(self, database: Database, rules: CommitRules, attachment_bytes: ByteStore | None) -> None:
        """Build the stores on an open database; use `open`."""
        cache = ProcessCache()
        hints = PostgresHints(database, cache)
        content = sealed_bytes(attachment_bytes, database.seals) or PostgresBytes(database, rules.compression)
        super().__init__(_rows(database, cache, content), hints, rules, Durability.DURABLE, database.seals)
        self._database = database

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        migrate: bool,
        rules: CommitRules,
        attachment_bytes: ByteStore | None = None,
        pool: asyncpg.Pool[asyncpg.Record] | None = None,
        listen_url: str | None = None,
        password: Password | None = None,
        on_statement: StatementHook | None = None,
        seals: Seals = PLAIN,
    ) -> Self:
        """Open the schema that the URL names, on a pool of its own or on the given one."""
        options = PostgresOptions.from_url(url, **({} if listen_url is None else {"listen_url": listen_url}))
        options = dataclasses.replace(options, password=password)
        queries = load_queries("lash.postgres.sql", schema=options.schema)
        database = await Database.open(options, queries=queries, pool=pool, on_statement=on_statement, seals=seals)
        try:
            await prepare_schema(database, migrate=migrate)
            await check_epoch(database)
            await check_mark(PostgresSealRows(database), seals)
        except BaseException:
            await database.close()
            raise
        storage = cls(database, rules, attachment_bytes)
        if options.listen_url is not None:
            await storage._check_listen_url()
        return storage

    async def lock_holders(self) -> list[LockHolder]:
        """Return the transactions that hold locks on the tables and block others, or are idle; oldest first."""
        return await self._database.lock_holders()

    async def connection_use(self) -> ConnectionUse:
        """Return how many connections the server has for ordinary users, and how many of them are in use."""
        found = await self._database.read_one(ConnectionUse, "connection_use")
        if found is None:
            raise CorruptData("query connection_use returned no row")
        return found

    async def _check_listen_url(self) -> None:
        """Raise `ConfigError` if no notification can arrive there; a server that does not answer is tried later."""
        try:
            await self.hints.probe()
        except StoreUnavailable as error:
            _LOG.warning("cannot receive notifications, polling instead: %s", error)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._database.check_loop()
        await super().close()
        await self._database.close()


def _rows(database: Database, cache: ProcessCache, attachment_bytes: ByteStore) -> BackendRows:
    batches, feed = ProcessBatches(database), ChangeFeed(database)
    database.when_disconnected(cache.clear)
    return BackendRows(
        activity=PostgresActivityRows(database, feed),
        acts=PostgresActRows(database),
        artifacts=PostgresArtifactRows(database),
        attachment_bytes=attachment_bytes,
        attachments=PostgresAttachmentManifest(database),
        claims=PostgresClaimRows(database),
        dead_letters=PostgresDeadLetterRows(database),
        effects=PostgresEffectRows(database, cache),
        events=PostgresEventRows(database, cache, batches, feed),
        grants=PostgresGrantRows(database, cache),
        leases=PostgresLeaseRows(database),
        limits=PostgresLimitRows(database),
        maintenance=PostgresMaintenanceRows(database),
        occurrences=PostgresOccurrenceRows(database),
        process_leases=PostgresProcessLeaseRows(database, cache, batches),
        processes=PostgresProcessRows(database, cache),
        queue=PostgresQueueRows(database),
        raw=PostgresRawRows(database),
        records=PostgresRecordRows(database),
        replies=PostgresReplyRows(database),
        schema=last_number(MIGRATIONS),
        seal=PostgresSealRows(database),
        schedules=PostgresScheduleRows(database),
        sessions=PostgresSessionRows(database),
        triggers=PostgresTriggerRows(database),
        usage=PostgresUsageRows(database),
        waits=PostgresWaitRows(database),
        work=PostgresWorkRows(database, cache),
        workers=PostgresWorkerRows(database),
    )
