"""The grants of every backend."""

from __future__ import annotations

from collections.abc import Sequence

from lash.base.limits import check_identifier
from lash.errors import GrantNotFound
from lash.model.process.process import AgentScope, Grant, GrantEntry, SessionDetached
from lash.plan.process.grant import (
    check_grant,
    check_process_ids,
    decode_detach,
    decode_grant,
    decode_grant_entry,
)
from lash.plan.process.process import check_agent_scope
from lash.stores.process.grant import GrantRows


class Grants:
    """The grants of one storage; the contract is `lash.stores.process.grant.GrantStore`."""

    def __init__(self, rows: GrantRows) -> None:
        self._rows = rows

    async def grant(self, grant: Grant) -> Grant:
        await self._rows.upsert(check_grant(grant))
        return grant

    async def revoke(self, scope: AgentScope, process_id: str) -> bool:
        check_agent_scope("scope", scope)
        return await self._rows.revoke(scope, check_identifier("process_id", process_id))

    async def transfer(self, from_scope: AgentScope, to_scope: AgentScope, process_ids: Sequence[str]) -> None:
        check_agent_scope("from_scope", from_scope)
        check_agent_scope("to_scope", to_scope)
        wanted = check_process_ids(process_ids)
        found = await self._rows.transfer(from_scope, to_scope, wanted)
        for process_id in wanted:
            if process_id not in found:
                raise GrantNotFound(from_scope.session_id, process_id)

    async def list(self, scope: AgentScope, *, live_only: bool = False) -> tuple[GrantEntry, ...]:
        check_agent_scope("scope", scope)
        return tuple(decode_grant_entry(row) for row in await self._rows.page(scope, live_only=live_only))

    async def has(self, scope: AgentScope, process_id: str) -> bool:
        check_agent_scope("scope", scope)
        return await self._rows.has(scope, check_identifier("process_id", process_id))

    async def of_process(self, process_id: str) -> tuple[Grant, ...]:
        rows = await self._rows.of_process(check_identifier("process_id", process_id))
        return tuple(decode_grant(row) for row in rows)

    async def detach_session(self, session_id: str) -> SessionDetached:
        check_identifier("session_id", session_id)
        return decode_detach(session_id, await self._rows.detach_session(session_id))
