"""The contract of durable waits, and the rows that a backend keeps for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from lash.model.effect import ExecutionScope
from lash.model.wait import Question, Resolution, ResolveAnswer, WaitIdentity, WaitKey, WaitRecord

if TYPE_CHECKING:
    from lash.plan.wait import SessionLife, StoredKey, WaitAnswer, WaitRow, WaitState


class WaitStore(Protocol):
    """Promises in the database: the first resolution wins, whichever caller makes it.

    Keys are signed with a secret that each database generates once. Tampered, unknown and revoked keys get the same
    answer: UnknownOrRevoked from ``resolve``, WaitUnknown from ``wait``.
    """

    async def key(self, scope: ExecutionScope, identity: WaitIdentity) -> WaitKey:
        """Return the key of a wait, always the same one during the life of the scope's session or process.

        Creates no wait yet. Raises SessionNotFound, SessionDeleted, ProcessNotFound or ProcessPruned if the scope's
        owner does not exist, InvalidInput for blank parts. Anyone with the key can resolve the wait: log its
        ``key_id``, not its ``text``.
        """
        ...

    async def open(
        self, key: WaitKey | str, *, timeout_ms: int | None = None, ask: Question | None = None
    ) -> WaitRecord:
        """Create the wait with its deadline if there is none, and return it, resolved or not.

        The deadline is counted from the first open that gives one, by the clock of the storage, and never moves. The
        question stays that of the first open that asks one.
        """
        ...

    async def get(self, key: WaitKey | str) -> WaitRecord | None:
        """Return the wait if it was opened or resolved; None for any other key, genuine or not."""
        ...

    async def resolve(self, key: WaitKey | str, resolution: Resolution) -> ResolveAnswer:
        """Resolve a wait, whether or not it was opened; the first resolution stands and wakes the waiting callers.

        Raises InvalidInput for a resolution that JSON cannot carry or that takes more than a mebibyte, and for a value
        that does not match the schema of the wait's question; the wait then stays open. A value that comes before the
        wait is opened is not checked.
        A deadline counts once its passing is stored, by a waiting caller or by ``expire``; a resolution before that is
        still the first. A call whose connection was lost is retried, and may then report its own resolution as an
        earlier one.
        """
        ...

    async def resolve_id(self, key_id: str, resolution: Resolution) -> ResolveAnswer:
        """Resolve a wait that was opened, by the id that ``pending`` returns; for operators.

        The answer is that of ``resolve``. An id is not a secret: never pass on one that an outsider sent.
        """
        ...

    async def get_id(self, key_id: str) -> WaitRecord | None:
        """Return the wait of an id that ``pending`` returns; for operators, like ``resolve_id``."""
        ...

    async def cancel(self, key: WaitKey | str) -> ResolveAnswer:
        """Resolve a wait as cancelled, unless it was resolved before."""
        ...

    async def wait(
        self, key: WaitKey | str, *, timeout_ms: int | None = None, patience_s: float | None = None
    ) -> Resolution:
        """Wait for the resolution and return it.

        ``timeout_ms`` is that of ``open``: when it passes, the wait is resolved as timed out for all callers.
        ``patience_s`` ends only this call, with WaitTimedOut, and leaves the wait as it is.
        """
        ...

    async def revoke(self, session_id: str) -> int:
        """Revoke every key of the session's scopes permanently, delete their waits, and return how many there were.

        Callers that wait get WaitUnknown, in other processes within a second. Later keys are new ones. Deleting a
        session does the same. Waits of processes stay. A session that does not exist has none: 0.
        """
        ...

    async def pending(
        self, *, scope: ExecutionScope | None = None, limit: int = 100, after: str | None = None
    ) -> tuple[WaitRecord, ...]:
        """Return at most ``limit`` waits that are open and not resolved, of one scope or of all, by ``key_id``.

        ``after`` is the ``key_id`` of the last wait of the previous page. A page with fewer than ``limit`` is the last.
        """
        ...

    async def expire(self, *, limit: int = 100) -> int:
        """Resolve at most ``limit`` waits whose deadline has passed as timed out, and return how many; workers call it.

        Call it again until it returns 0.
        """
        ...

    async def prune(self, *, resolved_before_ms: int, limit: int = 100) -> int:
        """Remove at most ``limit`` waits of operations that were resolved before a moment, and return how many.

        Waits of sessions and processes are deleted with their owners; only this deletes waits of operations. The key of
        a pruned wait can be resolved again, so choose a time by which no late resolution arrives.
        """
        ...


class WaitRows(Protocol):
    """The rows of waits in one database; `lash.backend.wait.Waits` makes a `WaitStore` of them.

    Keys are verified. No row is written for a revoked key or one whose owner does not exist, and rows are deleted with
    their owner or key, so every row belongs to a valid key.
    """

    async def secret(self) -> bytes:
        """Return the secret that signs keys; the first call generates it, and it never changes."""
        ...

    async def session_life(self, session_id: str) -> SessionLife:
        """Return which life of a session this is, or raise SessionNotFound or SessionDeleted."""
        ...

    async def process_life(self, process_id: str) -> int:
        """Return which life of a process this is, or raise ProcessNotFound or ProcessPruned."""
        ...

    async def open(self, key: StoredKey, timeout_ms: int | None, ask: str | None) -> WaitAnswer:
        """Write the wait if there is none, and its deadline and its question if it is pending and has none."""
        ...

    async def resolve(self, key: StoredKey, resolution: str, *, checked: bool) -> WaitAnswer:
        """Write the resolution unless there is one, or unless the wait asks a question and it was not checked."""
        ...

    async def row(self, key_id: str) -> WaitRow | None: ...

    async def states(self, key_ids: Collection[str]) -> list[WaitState]:
        """Return the states of those of the waits that exist, in one query."""
        ...

    async def expire(self, key_ids: Collection[str] | None, limit: int) -> int:
        """Time out those of the waits, or of all, whose deadline has passed, and return how many."""
        ...

    async def revoke(self, session_id: str) -> int:
        """Start a new generation of a session's keys and delete its waits; return how many there were."""
        ...

    async def pending(self, scope_id: str | None, limit: int, after: str) -> list[WaitRow]: ...

    async def prune(self, resolved_before_ms: int, limit: int) -> int: ...
