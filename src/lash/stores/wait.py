"""The contract of durable waits."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from lash.model.effect import ExecutionScope
from lash.model.wait import Resolution, ResolveAnswer, WaitIdentity, WaitKey, WaitRecord

if TYPE_CHECKING:
    from lash.plan.wait import SessionLife, StoredKey, WaitAnswer, WaitRow, WaitState


class WaitStore(Protocol):
    """Promises in the database: the first resolution wins, whoever resolves and whenever.

    Keys are signed with a secret that is made once for each database. A key that is tampered with, unknown or revoked
    is answered in one way: UnknownOrRevoked where it resolves, WaitUnknown where it waits.
    """

    async def key(self, scope: ExecutionScope, identity: WaitIdentity) -> WaitKey:
        """Return the key of a wait, always the same one during the life of the scope's session or process.

        Makes no wait yet. Raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned where the scope's
        owner is not there, InvalidInput for blank parts. Whoever has the key can resolve the wait: log its ``key_id``,
        not its ``text``.
        """
        ...

    async def open(self, key: WaitKey | str, *, timeout_ms: int | None = None) -> WaitRecord:
        """Note that somebody waits, and until when; return the wait, resolved if it is.

        The deadline is counted from the first open that gives one, by the clock of the storage, and never moves.
        """
        ...

    async def get(self, key: WaitKey | str) -> WaitRecord | None:
        """Return the wait if it was opened or resolved; None for any other key, genuine or not."""
        ...

    async def resolve(self, key: WaitKey | str, resolution: Resolution) -> ResolveAnswer:
        """Resolve a wait, whether or not it was opened; the first resolution stands and wakes those who wait.

        Raises InvalidInput for a resolution that JSON cannot carry or that takes more than a mebibyte.
        A deadline that has passed counts once it is written down, by somebody who waits or by ``expire``; a resolution
        before that is still the first. A call whose connection was lost is repeated, and is then told of its own
        resolution as of one that was there before.
        """
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

        Keys that are made afterwards are new ones. Deleting a session does the same. Waits of processes stay; those
        who wait elsewhere learn of it within a second. A session that does not exist has none: 0.
        """
        ...

    async def pending(
        self, *, scope: ExecutionScope | None = None, limit: int = 100, after: str | None = None
    ) -> tuple[WaitRecord, ...]:
        """Return waits that are open and not resolved, of one scope or of all, by the ids of their keys.

        ``after`` is the ``key_id`` of the last wait of the page before.
        """
        ...

    async def expire(self, *, limit: int = 100) -> int:
        """Resolve waits whose deadline passed as timed out, and return how many; workers call it."""
        ...

    async def prune(self, *, resolved_before_ms: int, limit: int = 100) -> int:
        """Remove waits of operations that were resolved before a moment, and return how many.

        Waits of sessions and processes go with them; nothing else would remove these. A key of a wait that was pruned
        resolves anew, so give those who resolve the time they may take.
        """
        ...


class WaitRows(Protocol):
    """The rows of waits in one database; `lash.backend.wait.Waits` makes a `WaitStore` of them.

    Keys are genuine here. No row is written for a key whose owner is gone or which was revoked, and none outlives
    either: a row that is there is one of the living.
    """

    async def secret(self) -> bytes:
        """Return the secret that signs keys, the same to everybody for ever; the first call makes it."""
        ...

    async def session_life(self, session_id: str) -> SessionLife:
        """Return which life of a session this is, or raise SessionNotFound or SessionDeleted."""
        ...

    async def process_life(self, process_id: str) -> int:
        """Return which life of a process this is, or raise ProcessNotFound or ProcessPruned."""
        ...

    async def open(self, key: StoredKey, timeout_ms: int | None) -> WaitAnswer:
        """Write the wait if there is none, and its deadline if it is pending and has none."""
        ...

    async def resolve(self, key: StoredKey, resolution: str) -> WaitAnswer:
        """Write the resolution unless there is one."""
        ...

    async def row(self, key_id: str) -> WaitRow | None: ...

    async def states(self, key_ids: Collection[str]) -> list[WaitState]:
        """Return how those of the waits stand that are there, in one query."""
        ...

    async def expire(self, key_ids: Collection[str] | None, limit: int) -> int:
        """Resolve those of the waits, or of all, whose deadline has passed, and return how many were."""
        ...

    async def revoke(self, session_id: str) -> int:
        """Begin a new generation of a session's keys and remove its waits; return how many there were."""
        ...

    async def pending(self, scope_id: str | None, limit: int, after: str) -> list[WaitRow]: ...

    async def prune(self, resolved_before_ms: int, limit: int) -> int: ...
