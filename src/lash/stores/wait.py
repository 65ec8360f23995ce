"""The contract of durable waits."""

from __future__ import annotations

from typing import Protocol

from lash.model.effect import ExecutionScope
from lash.model.wait import Resolution, ResolveAnswer, WaitIdentity, WaitKey, WaitRecord


class WaitStore(Protocol):
    """Promises in the database: the first resolution wins, whoever resolves and whenever.

    Keys are signed with a secret that is made once for each database. A key that is tampered with, unknown or revoked
    is answered in one way: UnknownOrRevoked where it resolves, WaitUnknown where it waits.
    """

    async def key(self, scope: ExecutionScope, identity: WaitIdentity) -> WaitKey:
        """Return the key of a wait, always the same one during the life of the scope's session or process.

        Makes no wait yet. Raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned where the scope's
        owner is not there, InvalidInput for blank parts.
        """
        ...

    async def open(self, key: WaitKey | str, *, timeout_ms: int | None = None) -> WaitRecord:
        """Note that somebody waits, and until when; return the wait, resolved if it is.

        The deadline is counted from the first open that gives one, by the clock of the storage, and never moves.
        """
        ...

    async def get(self, key: WaitKey | str) -> WaitRecord | None:
        """Return the wait if it was opened or resolved."""
        ...

    async def resolve(self, key: WaitKey | str, resolution: Resolution) -> ResolveAnswer:
        """Resolve a wait, whether or not it was opened; the first resolution stands and wakes those who wait."""
        ...

    async def cancel(self, key: WaitKey | str) -> ResolveAnswer:
        """Give a wait up: resolve it as cancelled, unless it was resolved before."""
        ...

    async def wait(
        self, key: WaitKey | str, *, timeout_ms: int | None = None, patience_s: float | None = None
    ) -> Resolution:
        """Return how a wait ends, at once if it has.

        ``timeout_ms`` is that of ``open``: when it passes, the wait is resolved as timed out, for everybody.
        ``patience_s`` ends only this call, with WaitTimedOut, and leaves the wait as it is.
        """
        ...

    async def revoke(self, session_id: str) -> int:
        """Make every key of the session's scopes unknown, for ever, end those who wait, and return how many waits went.

        Keys that are made afterwards are new ones. Deleting a session does the same.
        """
        ...

    async def pending(
        self, *, scope: ExecutionScope | None = None, limit: int = 100, after: str | None = None
    ) -> tuple[WaitRecord, ...]:
        """Return waits that are open and not resolved, of one scope or of all, by the ids of their keys."""
        ...

    async def expire(self, *, limit: int = 100) -> int:
        """Resolve waits whose deadline passed as timed out, and return how many; workers call it."""
        ...
