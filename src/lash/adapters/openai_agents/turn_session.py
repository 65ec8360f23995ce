"""The conversation of a turn as a session of OpenAI's Agents SDK."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from agents.items import TResponseInputItem
from agents.memory.session import SessionABC
from agents.memory.session_settings import SessionSettings, resolve_session_limit

from lash.adapters.formats.openai_items import PLUGIN_TYPE, Item
from lash.adapters.openai_agents.items import history_items, turn_entry
from lash.errors import ConfigError
from lash.model.session.node import PluginEntry
from lash.runtime.turns.turn import Turn

_LEAST_NODES: Final = 16
"""A turn has more nodes than items: its input and its reply are messages too."""


class TurnSession(SessionABC):
    """The session of a turn; `LashSession.of` returns it.

    It reads the conversation before the turn, and what a run adds is part of the turn's commit: all of it, once the
    run has ended, or nothing.
    """

    def __init__(self, turn: Turn) -> None:
        self.session_id = turn.session_id
        self.session_settings = SessionSettings()
        self._turn = turn
        self._added: list[Item] = []
        self._run: list[Item] | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items before this turn and those of it, or the last ``limit`` of them, in order."""
        wanted = resolve_session_limit(limit, self.session_settings)
        items: list[Any]
        own = [*self._added, *(self._run or ())]
        if wanted is None or wanted < 0:
            items = [*history_items(await self._turn.raw_path()), *own]
        elif wanted <= len(own):
            items = own[len(own) - wanted :]
        else:
            items = [*await self._last(wanted - len(own)), *own]
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items; they are committed with the turn."""
        if self._run is not None:
            self._run += cast("list[Item]", items)
        else:
            self._publish(cast("list[Item]", items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take back the last item that the run has added; earlier ones are part of the conversation."""
        if self._run:
            return cast("TResponseInputItem", self._run.pop())
        raise ConfigError("only items of the run can be removed inside a turn; send a message with edit() instead")

    async def clear_session(self) -> None:
        """Raise ConfigError: a turn does not delete its own conversation."""
        raise ConfigError("a session cannot be cleared inside its turn; delete it with storage.sessions.delete")

    def begin(self) -> None:
        """Keep the items of a run until it has ended."""
        self._run = []

    def end(self, *, publish: bool) -> None:
        """Add the items of the run to the turn's commit, or forget them."""
        items, self._run = self._run or [], None
        if publish:
            self._publish(items)

    def _publish(self, items: Sequence[Item]) -> None:
        # The turn shows its input and its reply to people; the items of both are for the model alone.
        replies = [place for place, item in enumerate(items) if item.get("role") == "assistant"]
        for place, item in enumerate(items):
            is_shown = item.get("role") != "user" and place != max(replies, default=-1)
            self._turn.add_entry(
                turn_entry(item) if is_shown else PluginEntry(plugin_type=PLUGIN_TYPE, body=cast("Any", item))
            )
        self._added += items

    async def _last(self, wanted: int) -> Iterable[Item]:
        """Return the last items of the conversation before the turn."""
        nodes = max(2 * wanted, _LEAST_NODES)
        while True:
            path = await self._turn.raw_path(nodes)
            is_whole = len(path) < nodes
            items = history_items(path, is_whole=is_whole)
            if is_whole or len(items) >= wanted:
                return items[max(0, len(items) - wanted) :]
            nodes *= 2
