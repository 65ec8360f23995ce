"""Which messages are still queued, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection

from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Text


class PostgresReplyRows:
    """Rows of one PostgreSQL storage; the contract is `lash.stores.waiter.ReplyRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def queued(self, batches: Collection[tuple[str, str]]) -> set[str]:
        sessions, ids = [session_id for session_id, _ in batches], [batch_id for _, batch_id in batches]
        return {row.text for row in await self._database.read_all(Text, "reply_queued", sessions, ids)}
