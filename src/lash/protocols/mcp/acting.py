"""What an operator's model can do: each act is recorded with the name of the operator."""

from __future__ import annotations

from typing import Annotated

from lash.errors import InvalidInput
from lash.model.scope import scope_process_id, scope_session_id
from lash.model.value import JSON
from lash.model.wait import Accepted, Rejected, Resolution, Resolved, UnknownOrRevoked
from lash.protocols.mcp.items import Answer
from lash.runtime.acting import acting
from lash.runtime.turns.handle import SessionHandle
from lash.stores.storage import Storage

_UNKNOWN_WAIT = "unknown wait: it was revoked, or never opened; see list_waits"


class Acting:
    """The tools that change something, in the name of one operator."""

    def __init__(self, storage: Storage, by: str) -> None:
        self._storage = storage
        self._by = by

    async def requeue(self, session_id: str, batch_id: str) -> Answer:
        """Queue a dead letter again; its attempts are counted from the start."""
        async with acting(self._storage, self._by, "requeue", batch_id, session_id=session_id):
            await self._storage.queue.requeue(session_id, batch_id)
        return {"done": "queued it again"}

    async def approve(
        self,
        wait_id: str,
        answer: Annotated[JSON, "The answer, which must match answer_schema of the wait."] = True,  # noqa: FBT002
    ) -> Answer:
        """Answer an open wait: approve a tool call, or give what a process asks for. The first answer stands."""
        return await self._settle(wait_id, Resolved(value=answer), "resolve")

    async def reject(self, wait_id: str, reason: str = "") -> Answer:
        """Reject an open wait: a tool call is denied, and other waiting code gets an error with the reason."""
        message = reason or f"rejected by {self._by}"
        return await self._settle(wait_id, Rejected(code="rejected", message=message), "reject")

    async def cancel_turn(
        self,
        session_id: str,
        batch_id: Annotated[str | None, "Only this input, queued or running; by default the running turn."] = None,
    ) -> Answer:
        """Cancel the running turn of a session, or remove one input from its queue."""
        async with acting(self._storage, self._by, "cancel", batch_id or session_id, session_id=session_id):
            handle = SessionHandle(self._storage, session_id)
            found = await handle.cancel(f"cancelled by {self._by}", batch_id=batch_id)
        return {"done": "asked it to stop" if found else "nothing was running"}

    async def cancel_process(self, process_id: str) -> Answer:
        """Ask a process to stop."""
        async with acting(self._storage, self._by, "cancel", process_id, process_id=process_id):
            await self._storage.processes.request_cancel(process_id, reason=f"cancelled by {self._by}")
        return {"done": "asked it to stop"}

    async def _settle(self, wait_id: str, resolution: Resolution, verb: str) -> Answer:
        wait = await self._storage.waits.get_id(wait_id)
        if wait is None:
            raise InvalidInput(_UNKNOWN_WAIT)
        session_id, process_id = scope_session_id(wait.scope), scope_process_id(wait.scope)
        async with acting(self._storage, self._by, verb, wait_id, session_id=session_id, process_id=process_id):
            settled = await self._storage.waits.resolve_id(wait_id, resolution)
            if isinstance(settled, UnknownOrRevoked):
                raise InvalidInput(_UNKNOWN_WAIT)
        return {"done": "answered" if isinstance(settled, Accepted) else "it was answered before; that answer stands"}
