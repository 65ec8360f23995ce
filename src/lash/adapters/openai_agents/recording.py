"""Which turn records what the SDK does here, and under which keys."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, Final

from agents import Agent
from agents.items import ModelResponse, TResponseOutputItem

from lash.model.value import JSON
from lash.runtime.turns.turn import Turn


class Recording:
    """What the runs of one call of `LashRunner` share: the turn, and how often a key was used."""

    def __init__(self, turn: Turn, once: Collection[str]) -> None:
        self.turn = turn
        self.once = frozenset(once)
        self.run_key = turn.key("run")
        self.agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        """Agents and their recorded copies, by the id of the agent."""
        self._counts: dict[str, int] = {}

    def used(self, key: str) -> int:
        """Return how often a key was used."""
        return self._counts.get(key, 0)

    def use(self, key: str) -> int:
        """Return the number of this use of a key, from 1."""
        self._counts[key] = self.used(key) + 1
        return self._counts[key]


class Line:
    """One run of the SDK. A run inside a tool call is a line of its own: its keys begin with the id of the call."""

    def __init__(self, recording: Recording, prefix: str, *, is_nested: bool = False) -> None:
        self.recording = recording
        self.prefix = prefix
        self.is_nested = is_nested
        self._calls: dict[str, str] = {}

    def below(self, call_id: str) -> Line:
        """Return the line of a run inside a tool call."""
        return Line(self.recording, f"{self.prefix}{call_id}/", is_nested=True)

    def key(self, name: str) -> str:
        """Return the key of an operation; a repeated one gets a number."""
        key = f"{self.prefix}{name}"
        number = self.recording.use(key)
        return key if number == 1 else f"{key}#{number}"

    @property
    def next_reply(self) -> int:
        """The number of the next reply of a model. Failed calls do not count: they are not recorded."""
        return self.recording.used(self._model_key) + 1

    @property
    def next_model_key(self) -> str:
        """The key of the next reply of a model."""
        return f"{self._model_key}#{self.next_reply}"

    def replied(self, response: ModelResponse) -> None:
        """Count a reply of a model, and remember the ids of its calls."""
        self.recording.use(self._model_key)
        self._calls = dict(reversed([_call(item) for item in response.output]))

    def call_id(self, tool: str) -> str:
        """Return the id of the first call of a tool in the last reply, for what the SDK calls without the id."""
        return self._calls.get(tool, tool)

    async def record(
        self, name: str, key: str, body: Callable[[], Awaitable[JSON]], *args: str, once: bool = False
    ) -> JSON:
        """Run a function as a step of the turn, or return what is recorded; runs of the SDK inside are not recorded."""

        async def run(*_args: str) -> Any:  # noqa: ANN401 (any JSON)
            with recorded_by(None):
                return await body()

        return await self.recording.turn.options(key=key, once=once).step(name, run, *args)

    @property
    def _model_key(self) -> str:
        return f"{self.prefix}model"


_line: Final[contextvars.ContextVar[Line | None]] = contextvars.ContextVar("lash_openai_agents", default=None)


def current_line() -> Line | None:
    """Return the line that records here; None outside of a run of `LashRunner`, and inside a step."""
    return _line.get()


@contextlib.contextmanager
def recorded_by(line: Line | None) -> Iterator[None]:
    """Let a line record what runs in this block, and in tasks that it starts."""
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)


def _call(item: TResponseOutputItem) -> tuple[str, str]:
    return str(getattr(item, "name", "")), str(getattr(item, "call_id", ""))
