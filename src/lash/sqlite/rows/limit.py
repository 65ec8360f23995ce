"""Named limits on SQLite."""

from __future__ import annotations

from lash.errors import CorruptData
from lash.plan.limit import LimitRow, ReservedRow
from lash.sqlite.engine.database import Database, Transaction


class SQLiteLimitRows:
    """The limits of one SQLite storage; the contract is `lash.stores.limit.LimitRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, name: str, key: str, interval_us: int, burst: int) -> ReservedRow:
        def body(transaction: Transaction) -> ReservedRow:
            row = transaction.one(
                ReservedRow,
                "limit_reserve",
                name=name,
                key=key,
                interval_us=interval_us,
                burst=burst,
                now_ms=transaction.now_ms,
            )
            if row is None:
                raise CorruptData("query limit_reserve returned no row")
            return row

        return await self._database.write_briefly(body)

    async def page(self, limit: int, after: tuple[str, str]) -> list[LimitRow]:
        name, key = after
        return self._database.read(
            lambda reader: reader.all(LimitRow, "limit_page", name=name, key=key, limit=limit, now_ms=reader.now_ms)
        )

    async def prune(self, limit: int) -> int:
        return await self._database.write_briefly(
            lambda transaction: transaction.run("limit_prune", limit=limit, now_ms=transaction.now_ms)
        )
