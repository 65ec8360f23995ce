"""The contract of grants: which session may see and name which process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lash.model.process.process import Grant, GrantEntry, Scope, SessionDetached


class GrantStore(Protocol):
    """Visibility of processes. Grants never affect whether a process runs."""

    async def grant(self, grant: Grant) -> Grant:
        """Let a scope see a process, ended or not; a grant that exists gets the new kind and label."""
        ...

    async def revoke(self, scope: Scope, process_id: str) -> bool:
        """Take a grant back, and return whether there was one."""
        ...

    async def transfer(self, from_scope: Scope, to_scope: Scope, process_ids: Sequence[str]) -> None:
        """Move grants with their kinds and labels, all or none; a missing one raises GrantNotFound."""
        ...

    async def list(self, scope: Scope, *, live_only: bool = False) -> tuple[GrantEntry, ...]:
        """Return what exactly this scope may see, by process id; only running processes if asked."""
        ...

    async def has(self, scope: Scope, process_id: str) -> bool:
        """Say whether exactly this scope may see the process."""
        ...

    async def of_process(self, process_id: str) -> tuple[Grant, ...]:
        """Return who may see a process, by session and frame."""
        ...

    async def detach_session(self, session_id: str) -> SessionDetached:
        """Revoke all grants of a session and clear it as a wake target, and report what that means.

        No process is cancelled and no event is appended. Doing it again reports nothing.
        """
        ...
