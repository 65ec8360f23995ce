"""The mark of a sealed storage on PostgreSQL."""

from __future__ import annotations

from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Content, Flag


class PostgresSealRows:
    """The mark of one PostgreSQL storage; the contract is `lash.stores.seal.SealRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self) -> bytes | None:
        found = await self._database.read_one(Content, "seal_mark")
        return None if found is None else found.content

    async def keep_mark(self, sealed: bytes) -> None:
        await self._database.write_one(Flag, "seal_keep_mark", sealed, repeatable=True)
