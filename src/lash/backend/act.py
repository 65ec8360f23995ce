"""The acts of operators, over the rows of either database."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.ids import new_id
from lash.base.limits import check_identifier, check_integer, check_limit
from lash.model.act import Act, ActOutcome
from lash.plan.act import ActFilter, ActRow, check_act, check_before, check_error, check_filter, decode_act
from lash.stores.act import ActRows


class Acts:
    """The acts of one storage; the contract is `lash.stores.act.ActStore`."""

    def __init__(self, rows: ActRows) -> None:
        self._rows = rows

    async def record(
        self, by: str, verb: str, target: str, *, session_id: str | None = None, process_id: str | None = None
    ) -> Act:
        draft = check_act(new_id(), by, verb, target, check_filter(None, session_id, process_id))
        return decode_act(await self._rows.insert(draft))

    async def settle(self, act_id: str, *, error: str | None = None) -> bool:
        reason = check_error(error)
        outcome = ActOutcome.DONE if reason is None else ActOutcome.REFUSED
        return await self._rows.settle(check_identifier("act_id", act_id), outcome.value, reason)

    async def list(
        self,
        *,
        by: str | None = None,
        session_id: str | None = None,
        process_id: str | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[Act, ...]:
        wanted = check_filter(by, session_id, process_id)
        rows = await self._page(wanted, check_before(after), check_limit(limit))
        return tuple(decode_act(row) for row in rows)

    async def _page(self, wanted: ActFilter, before: int, limit: int) -> Sequence[ActRow]:
        if wanted.session_id is not None:
            return await self._rows.page_of_session(wanted.session_id, wanted.operator, before, limit)
        if wanted.process_id is not None:
            return await self._rows.page_of_process(wanted.process_id, wanted.operator, before, limit)
        if wanted.operator is not None:
            return await self._rows.page_by_operator(wanted.operator, before, limit)
        return await self._rows.page(before, limit)

    async def prune(self, *, before_ms: int, limit: int = 1_000) -> int:
        return await self._rows.prune(check_integer("before_ms", before_ms), check_limit(limit))
