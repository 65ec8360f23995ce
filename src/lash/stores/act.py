"""The contract of operators' acts, and the rows that a backend keeps for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lash.model.act import Act

if TYPE_CHECKING:
    from lash.plan.act import ActDraft, ActRow


class ActStore(Protocol):
    """What operators did, and who did it. `lash.runtime.acting.acting` records an act around any call.

    Acts belong to the storage: they outlive the sessions and processes that they concern, until they are pruned.
    """

    async def record(
        self, by: str, verb: str, target: str, *, session_id: str | None = None, process_id: str | None = None
    ) -> Act:
        """Record an act before it is done, so that no act is missed; it has no outcome yet. Not idempotent.

        ``session_id`` or ``process_id`` names what the target belongs to; neither has to exist.
        """
        ...

    async def settle(self, act_id: str, *, error: str | None = None) -> bool:
        """Record that an act was done, or the class of the error with which it was refused; the first outcome stands.

        Returns False if there is no such act without an outcome.
        """
        ...

    async def list(
        self,
        *,
        by: str | None = None,
        session_id: str | None = None,
        process_id: str | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> tuple[Act, ...]:
        """Return at most ``limit`` acts, the last first: of all, of an operator, about a session or about a process.

        ``after`` is the position of the last act of the previous page. A page with fewer than ``limit`` is the last.
        Its cost does not grow with the number of acts. Raises InvalidInput if a session and a process are named.
        """
        ...

    async def prune(self, *, before_ms: int, limit: int = 1_000) -> int:
        """Remove at most ``limit`` acts from before a moment, the oldest first, and return how many."""
        ...


class ActRows(Protocol):
    """The rows of acts in one database; `lash.backend.act.Acts` makes an `ActStore` of them."""

    async def insert(self, draft: ActDraft) -> ActRow: ...

    async def settle(self, act_id: str, outcome: str, error: str | None) -> bool:
        """Write the outcome unless there is one, and return whether it was written."""
        ...

    async def page(self, before: int, limit: int) -> list[ActRow]:
        """Return acts before a position, the last first."""
        ...

    async def page_by_operator(self, operator: str, before: int, limit: int) -> list[ActRow]: ...

    async def page_of_session(self, session_id: str, operator: str | None, before: int, limit: int) -> list[ActRow]: ...

    async def page_of_process(self, process_id: str, operator: str | None, before: int, limit: int) -> list[ActRow]: ...

    async def prune(self, before_ms: int, limit: int) -> int: ...
