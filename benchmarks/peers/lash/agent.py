"""Turns of an agent of `lash.agents`, which records each call of its model and its tool as a step."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import lash
from benchmarks.peers.protocol import Question
from benchmarks.peers.turn_script import (
    INSTRUCTIONS,
    Begin,
    Conversation,
    ScriptedTurn,
    agent_turns,
    result_of,
    turn_of,
)
from lash.agents import Agent, ModelReply, ModelRequest, ToolCall
from lash.model.session.message import Message, Part, PartKind, Role
from lash.model.session.node import MessageEntry, Node
from tests.factories.session import MOMENT

_TOOL = "search"
_NODES = 500
"""How many nodes are appended at once."""


async def search(query: str) -> str:
    """Search for an answer."""
    return result_of(query)


async def model(request: ModelRequest) -> ModelReply:
    """Reply with the next text of the script."""
    results = 0
    for message in reversed(request.messages):
        if message.role is Role.USER:
            break
        results += sum(part.kind is PartKind.TOOL_RESULT for part in message.parts)
    turn = turn_of(message.parts[0].content)
    if results == len(turn.calls):
        return ModelReply.of(turn.reply)
    call = turn.calls[results]
    return ModelReply.of(ToolCall(id=call.call_id, name=_TOOL, arguments=call.arguments))


def _earlier(session: int, turns: Sequence[ScriptedTurn]) -> Iterator[Node]:
    """Return the messages of turns as an agent stores them."""
    for number, turn in enumerate(turns):
        name = f"earlier-{session}-{number}"
        yield _node(f"{name}-user", Role.USER, Part(id="text", kind=PartKind.TEXT, content=turn.user))
        for place, call in enumerate(turn.calls):
            for kind, content in ((PartKind.TOOL_CALL, call.arguments), (PartKind.TOOL_RESULT, call.result)):
                part = Part(id=kind, kind=kind, content=content, tool_call_id=call.call_id, tool_name=_TOOL)
                yield _node(f"{name}-{place}-{kind}", Role.ASSISTANT, part)
        yield _node(f"{name}-reply", Role.ASSISTANT, Part(id="text", kind=PartKind.PROSE, content=turn.reply))


def _node(node_id: str, role: Role, part: Part) -> Node:
    message = Message(id=node_id, role=role, parts=(part,))
    return Node(node_id=node_id, timestamp=MOMENT, entry=MessageEntry(message=message))


def _text(part: Part) -> str:
    if part.kind is PartKind.TOOL_CALL:
        return str(json.loads(part.content)["query"])
    return part.content


@asynccontextmanager
async def opened(question: Question) -> AsyncIterator[Begin]:
    """Open an application with its worker."""
    app = lash.App(question["url"])
    Agent("assistant", model, instructions=INSTRUCTIONS, tools=[search]).declare(app)

    async def begin(number: int, turns: Sequence[ScriptedTurn]) -> Conversation:
        session = app.session(f"session-{number}")
        await app.storage.sessions.create(session.session_id)
        nodes = list(_earlier(number, turns))
        for first in range(0, len(nodes), _NODES):
            await app.storage.session(session.session_id).append(nodes[first : first + _NODES])

        async def texts() -> list[str]:
            return [_text(part) for message in await session.messages() for part in message.parts]

        return Conversation(session.ask, texts)

    async with app:
        yield begin


AGENT = {"agent_turns": agent_turns(opened)}
