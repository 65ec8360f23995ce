"""Sums of usage on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from lash.backend.usage import SUMS
from lash.model.session.usage import UsageGroup
from lash.plan.session.usage_sum import NO_DAY, PreparedSums, SumKey, UsageSumRow
from lash.sqlite.engine.database import Database


class SQLiteUsageRows:
    """The ledgers of one SQLite storage; the contract is `lash.stores.usage.UsageRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sums(self, wanted: PreparedSums) -> Sequence[UsageSumRow]:
        chosen, after = wanted.chosen, wanted.after or SumKey(day=NO_DAY - 1)
        groups = ("day", "model", "agent", "source") if wanted.way == "all" else tuple(UsageGroup)
        of_session = {} if chosen.session_id is None else {"session_id": chosen.session_id}
        floor = {} if wanted.way in ("all", "in_order") else {"floor_ms": wanted.floor_ms}
        return await self._database.read_in_thread(
            lambda reader: reader.all(
                UsageSumRow,
                SUMS[wanted.way],
                **{f"by_{group}": int(group in wanted.by) for group in groups},
                timed=int(wanted.is_timed),
                since_ms=wanted.since_ms,
                until_ms=wanted.until_ms,
                **floor,
                **of_session,
                agent=chosen.agent,
                model=chosen.model,
                after_day=after.day,
                after_model=after.model,
                after_agent=after.agent,
                after_session=after.session_id,
                after_source=after.source,
                limit=wanted.limit,
            )
        )
