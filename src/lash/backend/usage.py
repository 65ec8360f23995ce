"""The usage of all sessions, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lash.model.session.usage import UsagePage
from lash.plan.session.usage_sum import UsageFilter, decode_sums, prepare_sums
from lash.stores.usage import UsageRows

SUMS: Final = {
    "one": "usage_sums_of_session",
    "each": "usage_sums",
    "all": "usage_sums_of_all",
    "in_order": "usage_sums_by_session",
}
"""The query for each way of reading (`lash.plan.session.usage_sum.PreparedSums.way`)."""


class Usages:
    """The usage of one storage; the contract is `lash.stores.usage.UsageStore`."""

    def __init__(self, rows: UsageRows) -> None:
        self._rows = rows

    async def sum(
        self,
        by: Sequence[str] = ("day",),
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        session_id: str | None = None,
        agent: str | None = None,
        model: str | None = None,
        limit: int = 1_000,
        cursor: str | None = None,
    ) -> UsagePage:
        chosen = UsageFilter(since_ms, until_ms, session_id, agent, model)
        wanted = prepare_sums(by, chosen, limit=limit, cursor=cursor)
        return decode_sums(wanted, await self._rows.sums(wanted))
