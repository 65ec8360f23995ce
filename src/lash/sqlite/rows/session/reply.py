"""Which messages are still queued, on SQLite."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from lash.sqlite.engine.database import Database, Reader
from lash.sqlkit.rows import Text

_LONG_READ: Final = 100
"""A query about more batches than this runs in a thread: it would block the event loop for too long."""


class SQLiteReplyRows:
    """Rows of one SQLite storage; the contract is `lash.stores.waiter.ReplyRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def queued(self, batches: Collection[tuple[str, str]]) -> set[str]:
        asked = msgspec.json.encode(batches).decode()

        def body(reader: Reader) -> set[str]:
            return {row.text for row in reader.all(Text, "reply_queued", batches=asked)}

        is_long = len(batches) > _LONG_READ
        return await self._database.read_in_thread(body) if is_long else self._database.read(body)
