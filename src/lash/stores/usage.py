"""The contract of usage: the tokens of all sessions, summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lash.model.session.usage import UsagePage

if TYPE_CHECKING:
    from lash.plan.session.usage_sum import PreparedSums, UsageSumRow


class UsageStore(Protocol):
    """The token ledgers of all sessions. Each commit adds its entries, with its time and the agent of its session."""

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
        """Return the tokens of each day, model, agent, session or source, or of each combination of them.

        ``by`` has the values of `UsageGroup`, such as ``["day", "model"]``. The sums come in the order of day, model,
        agent, session and source. Without anything to group by there is one sum, or none if there are no tokens.
        ``since_ms`` and ``until_ms`` bound the time of the commits: from the first on, and before the second.
        ``session_id``, ``agent`` and ``model`` choose entries; an unknown one has none.

        Entries that an earlier version of lash wrote have no time: they have no day, are left out if a time is given,
        and count for the agent that their session has now. The tokens of deleted sessions are not counted. An imported
        session has the sums of its source, with the time of the import.

        It is one statement. With ``since_ms`` it reads the sessions that were active since then, and of their ledgers
        the entries since then; without it, every entry.
        """
        ...


class UsageRows(Protocol):
    """The ledgers in one database; `lash.backend.usage.Usages` makes a `UsageStore` of them."""

    async def sums(self, wanted: PreparedSums) -> Sequence[UsageSumRow]: ...
