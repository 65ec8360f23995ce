"""Named limits on PostgreSQL; the server's clock decides."""

from __future__ import annotations

from lash.errors import CorruptData
from lash.plan.limit import LimitRow, ReservedRow
from lash.postgres.engine.database import Database
from lash.sqlkit.rows import Number


class PostgresLimitRows:
    """The limits of one PostgreSQL storage; the contract is `lash.stores.limit.LimitRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, name: str, key: str, interval_us: int, burst: int) -> ReservedRow:
        arguments = (name, key, interval_us, burst)
        row = await self._database.write_one(ReservedRow, "limit_reserve", *arguments, repeatable=False)
        if row is None:
            raise CorruptData("query limit_reserve returned no row")
        return row

    async def page(self, limit: int, after: tuple[str, str]) -> list[LimitRow]:
        return await self._database.read_all(LimitRow, "limit_page", *after, limit)

    async def prune(self, limit: int) -> int:
        pruned = await self._database.write_one(Number, "limit_prune", limit, repeatable=True)
        return 0 if pruned is None else pruned.number
