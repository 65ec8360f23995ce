"""Tools that are not known when an agent is made: a source has them, and its tools may change."""

from __future__ import annotations

from typing import Protocol

from lash.agents.tools import ToolAnswer
from lash.agents.vocabulary import ToolSpec
from lash.runtime.policy import Retry
from lash.runtime.turns.turn import Turn


class CallableTool(Protocol):
    """A tool as the loop of an agent calls it."""

    @property
    def name(self) -> str: ...

    @property
    def needs_approval(self) -> bool: ...

    @property
    def approval_timeout_s(self) -> float | None: ...

    @property
    def once(self) -> bool: ...

    @property
    def retry(self) -> Retry: ...

    @property
    def takes_turn(self) -> bool: ...

    async def answer(self, arguments: str, *, turn: Turn, is_last: bool = True) -> ToolAnswer:
        """Return the answer to the model, or raise an error if another attempt may help."""
        ...


class ToolSource(Protocol):
    """Several tools whose names begin with one prefix.

    The prefix decides which source a call is for, and not the tools that the source has at the moment: a replay of the
    call must be the same after they changed.
    """

    @property
    def prefix(self) -> str: ...

    async def specs(self, turn: Turn) -> tuple[ToolSpec, ...]:
        """Return the tools that there are now; raise ToolsUnavailable if that is unknown."""
        ...

    def find(self, name: str) -> CallableTool:
        """Return the tool of a name with the prefix, whether or not there is one now; it does no IO."""
        ...
