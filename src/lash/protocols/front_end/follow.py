"""Following one turn: what it shows while it runs, and how it ends.

Activity is best effort, so it is only a preview. The outcome has the messages as they were committed, and a protocol
corrects what it has shown by them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Final, NamedTuple

from lash.agents.vocabulary import ToolCall
from lash.model.activity import Gap, Observed, ProcessChanged, TurnActivity
from lash.model.value import JSON
from lash.protocols.front_end.turn import Attached, Gone, Outcome, Waiting, outcome_of
from lash.runtime.observe.stream import observe
from lash.stores.storage import Storage

QUIET_S: Final = 15.0
"""How long a stream is silent before it says that it is still there; proxies close silent connections after 60 s."""
_FIRST_PAUSE_S: Final = 0.25
_GROWTH: Final = 4
"""The pause before the outcome is read without a reason grows by this factor each time."""


class Began(NamedTuple):
    """A reply of the model begins. ``place`` is its number in the turn, or the key of a stream.

    ``is_again`` says that it began before and was cut off: what was shown since then is void.
    """

    place: str
    is_round: bool
    is_again: bool


class Piece(NamedTuple):
    """A piece of the reply's text."""

    text: str


class Thought(NamedTuple):
    """A piece of the model's reasoning."""

    text: str


class Called(NamedTuple):
    """A tool is called, or waits for an approval to be called."""

    call: ToolCall


class Returned(NamedTuple):
    """A tool has returned; a long result has no text and comes with the commit."""

    call_id: str
    text: str | None
    failed: bool


class Shown(NamedTuple):
    """Anything else that the turn has shown."""

    payload: JSON


class Quiet(NamedTuple):
    """Nothing has happened for a while."""


class Ended(NamedTuple):
    """The turn has ended, or waits for a person; nothing follows."""

    outcome: Outcome


Event = Began | Piece | Thought | Called | Returned | Shown | Quiet | Ended


async def follow(storage: Storage, turn: Attached, *, quiet_s: float = QUIET_S) -> AsyncGenerator[Event, None]:
    """Yield what a turn shows, from its cursor on, and at last how it ended.

    There is one observer, and nothing is buffered beyond its current page. The outcome is read when the session has
    changed, and after growing pauses; it is read first, so a turn that has ended is not shown again.
    """
    outcome = await outcome_of(storage, turn)
    if outcome is not None and not isinstance(outcome, Waiting):
        yield Ended(outcome)
        return
    reader, pauses = _Reader(turn), _Pauses(quiet_s)
    observed = observe(storage, turn.session_id, turn.cursor)
    upcoming: asyncio.Task[Observed | None] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(_next(observed))
            await asyncio.wait({upcoming}, timeout=pauses.next())
            if not upcoming.done():
                is_due = True
                if pauses.is_quiet():
                    yield Quiet()
            else:
                value, upcoming = upcoming.result(), None
                if value is None:
                    yield Ended(Gone())
                    return
                is_due = not isinstance(value, TurnActivity | ProcessChanged)
                for event in reader.read(value):
                    pauses.reset()
                    yield event
            outcome = await outcome_of(storage, turn) if is_due else None
            if outcome is not None:
                yield Ended(outcome)
                return
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait({upcoming})
        await observed.aclose()


async def _next(observed: AsyncGenerator[Observed, None]) -> Observed | None:
    """Return the next value; None if the session was deleted."""
    return await anext(observed, None)


class _Pauses:
    """How long to wait for the next value; short after something was shown, longer and longer after that."""

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._pause_s = min(_FIRST_PAUSE_S, quiet_s)
        self._said_at = time.monotonic()

    def next(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * _GROWTH, self._quiet_s)
        return pause_s

    def reset(self) -> None:
        self._pause_s = min(_FIRST_PAUSE_S, self._quiet_s)
        self._said_at = time.monotonic()

    def is_quiet(self) -> bool:
        """Return whether nothing was said for the quiet time, and count it as said."""
        now = time.monotonic()
        if now - self._said_at < self._quiet_s:
            return False
        self._said_at = now
        return True


class _Reader:
    """Reads activity of one turn.

    Where pieces are missing, it skips to the next begin of a reply: half a text would be wrong.
    """

    def __init__(self, turn: Attached) -> None:
        self._turn = turn
        self._skips = not turn.is_whole and not turn.is_continued
        self._begun: set[str] = set()

    def read(self, observed: Observed) -> Iterator[Event]:
        if isinstance(observed, Gap):
            self._skips = True
        if not isinstance(observed, TurnActivity):
            return
        if observed.turn_id != self._turn.turn_id:
            # Activity is deleted from its beginning: that of this turn, which comes later, is all there.
            self._skips = self._skips and bool(self._begun)
            return
        event = self._event(observed.payload)
        if isinstance(event, Began):
            self._skips = False
        if not self._skips:
            yield event

    def _event(self, payload: JSON) -> Event:
        match payload:
            case {"model_call": int(number)}:
                return self._began(str(number), is_round=True)
            case {"stream": str(key)}:
                return self._began(key, is_round=False)
            case {"text": str(text)} | str(text):
                return Piece(text)
            case {"reasoning": str(text)}:
                return Thought(text)
            case {"tool_call": dict(call)} | {"approval": dict(call)}:
                return _called(call, payload)
            case {"tool_result": {"id": str(call_id), "text": str(text), **rest}}:
                return Returned(call_id, text, bool(rest.get("failed")))
            case {"tool_result": {"id": str(call_id), **rest}}:
                return Returned(call_id, None, bool(rest.get("failed")))
        return Shown(payload)

    def _began(self, place: str, *, is_round: bool) -> Began:
        is_again = place in self._begun
        self._begun.add(place)
        return Began(place, is_round, is_again)


def _called(call: dict[str, JSON], payload: JSON) -> Event:
    call_id, name, arguments = call.get("id"), call.get("name"), call.get("arguments")
    if not isinstance(call_id, str) or not isinstance(name, str):
        return Shown(payload)
    return Called(ToolCall(id=call_id, name=name, arguments=arguments if isinstance(arguments, str) else "{}"))
