"""The contract of grants: which session may see and name which process."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.process.process import AgentScope, Grant, GrantEntry, SessionDetached

if TYPE_CHECKING:
    from lash.plan.process.grant import DetachAnswer, GrantEntryRow, GrantRow


class GrantStore(Protocol):
    """The visibility of processes. Grants never affect whether a process runs."""

    async def grant(self, grant: Grant) -> Grant:
        """Let a scope see a process, running or ended; an existing grant gets the new kind and label.

        Raises ProcessNotFound or ProcessPruned if the process does not exist.
        """
        ...

    async def revoke(self, scope: AgentScope, process_id: str) -> bool:
        """Remove a grant, and return whether there was one."""
        ...

    async def transfer(self, from_scope: AgentScope, to_scope: AgentScope, process_ids: Sequence[str]) -> None:
        """Move grants with their kinds and labels, all or none; a missing one raises GrantNotFound."""
        ...

    async def list(self, scope: AgentScope, *, live_only: bool = False) -> tuple[GrantEntry, ...]:
        """Return the grants of exactly this scope, ordered by process id; with ``live_only`` of running processes."""
        ...

    async def has(self, scope: AgentScope, process_id: str) -> bool:
        """Return whether exactly this scope may see the process."""
        ...

    async def of_process(self, process_id: str) -> tuple[Grant, ...]:
        """Return the grants of a process, ordered by session and frame."""
        ...

    async def detach_session(self, session_id: str) -> SessionDetached:
        """Revoke all grants of a session, clear it as a wake target, and report what changed.

        No process is cancelled and no event is appended. A second call reports nothing.
        """
        ...


class GrantRows(Protocol):
    """The rows of grants in one database; `lash.backend.process.grant.Grants` makes a `GrantStore` of them."""

    async def upsert(self, grant: Grant) -> None:
        """Write the grant, or raise ProcessNotFound or ProcessPruned."""
        ...

    async def revoke(self, scope: AgentScope, process_id: str) -> bool: ...

    async def transfer(
        self, from_scope: AgentScope, to_scope: AgentScope, process_ids: Sequence[str]
    ) -> Collection[str]:
        """Return which of the processes the first scope has a grant of; move the grants if it has all of them."""
        ...

    async def page(self, scope: AgentScope, *, live_only: bool) -> list[GrantEntryRow]: ...

    async def has(self, scope: AgentScope, process_id: str) -> bool: ...

    async def of_process(self, process_id: str) -> list[GrantRow]:
        """Return the grants of a process, or raise ProcessNotFound or ProcessPruned."""
        ...

    async def detach_session(self, session_id: str) -> DetachAnswer:
        """Revoke the grants of a session, clear it as a wake target, and mark its queued wakes as undeliverable."""
        ...
