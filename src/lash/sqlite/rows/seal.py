"""The mark of a sealed storage on SQLite."""

from __future__ import annotations

from lash.sqlite.engine.database import Database, Transaction
from lash.sqlkit.rows import Content


class SQLiteSealRows:
    """The mark of one SQLite storage; the contract is `lash.stores.seal.SealRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self) -> bytes | None:
        found = self._database.ask(Content, "seal_mark")
        return found[0].content if found else None

    async def keep_mark(self, sealed: bytes) -> None:
        def body(transaction: Transaction) -> None:
            transaction.run("seal_keep_mark", secret=sealed, now_ms=transaction.now_ms)

        await self._database.write(body)
