"""What observers of a session see of a streamed model call: pieces of text and reasoning, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.messages import (
    AgentStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.tools import AgentDepsT, RunContext

from lash.model.value import JSON
from lash.runtime.current import current
from lash.runtime.turns.turn import Turn


def showing(handler: EventStreamHandler[AgentDepsT] | None) -> EventStreamHandler[AgentDepsT]:
    """Return a handler that shows the pieces of a stream to the observers of the turn, and calls another one."""

    async def show(context: RunContext[AgentDepsT], events: AsyncIterable[AgentStreamEvent]) -> None:
        shown = _shown(events)
        if handler is not None:
            await handler(context, shown)
        # What a handler leaves is shown too.
        async for _ in shown:
            pass

    return show


async def _shown(events: AsyncIterable[AgentStreamEvent]) -> AsyncIterator[AgentStreamEvent]:
    run = current(None)
    turn = run if isinstance(run, Turn) else None
    async for event in events:
        piece = _piece(event)
        if turn is not None and piece is not None:
            turn.activity(piece)
        yield event


def _piece(event: AgentStreamEvent) -> JSON:
    """Return what is shown of an event, as `lash.agents` shows it; None if nothing is."""
    if isinstance(event, PartStartEvent):
        part = event.part
        if isinstance(part, TextPart | ThinkingPart) and part.content:
            return {"text" if isinstance(part, TextPart) else "reasoning": part.content}
    elif isinstance(event, PartDeltaEvent):
        delta = event.delta
        if isinstance(delta, TextPartDelta | ThinkingPartDelta) and delta.content_delta:
            return {"text" if isinstance(delta, TextPartDelta) else "reasoning": delta.content_delta}
    return None
