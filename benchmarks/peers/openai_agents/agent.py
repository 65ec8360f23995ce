"""Turns of an agent of the OpenAI Agents SDK, with its own sessions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

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

Item = Any


@function_tool
async def search(query: str) -> str:
    """Search for an answer."""
    return result_of(query)


class Scripted(Model):
    """A model that replies with the next text of the script."""

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002, ANN401, ARG002
        results = 0
        for item in reversed(input):
            if item.get("role") == "user":
                break
            results += item.get("type") == "function_call_output"
        turn = turn_of(item["content"])
        output = _reply(turn) if results == len(turn.calls) else _called(turn, results)
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        raise NotImplementedError


def _reply(turn: ScriptedTurn) -> ResponseOutputMessage:
    text = ResponseOutputText(text=turn.reply, type="output_text", annotations=[])
    return ResponseOutputMessage(id="reply", content=[text], role="assistant", status="completed", type="message")


def _called(turn: ScriptedTurn, place: int) -> ResponseFunctionToolCall:
    call = turn.calls[place]
    return ResponseFunctionToolCall(call_id=call.call_id, name="search", arguments=call.arguments, type="function_call")


def _earlier(turns: Sequence[ScriptedTurn]) -> list[Item]:
    """Return the items of turns as the runner stores them."""
    items: list[Item] = []
    for turn in turns:
        items.append({"role": "user", "content": turn.user})
        for place, call in enumerate(turn.calls):
            items.append(_called(turn, place).model_dump(exclude_unset=True))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": call.result})
        items.append(_reply(turn).model_dump(exclude_unset=True))
    return items


def _text(item: Item) -> str:
    if item.get("type") == "function_call":
        return str(json.loads(item["arguments"])["query"])
    if item.get("type") == "function_call_output":
        return str(item["output"])
    return item["content"] if isinstance(item["content"], str) else str(item["content"][0]["text"])


def agent_task(sessions_of: Callable[[Question], Any]) -> Callable[[Question], Any]:
    """Return the task with the sessions of the SDK."""

    @asynccontextmanager
    async def opened(question: Question) -> AsyncIterator[Begin]:
        sessions, made = sessions_of(question), []
        agent = Agent(name="assistant", instructions=INSTRUCTIONS, model=Scripted(), tools=[search])
        # Traces would be sent to OpenAI.
        config = RunConfig(tracing_disabled=True)

        async def begin(number: int, turns: Sequence[ScriptedTurn]) -> Conversation:
            session = sessions.open(number)
            made.append(session)
            await session.add_items(_earlier(turns))

            async def say(user: str) -> str:
                return str((await Runner.run(agent, user, session=session, run_config=config)).final_output)

            async def texts() -> list[str]:
                return [_text(item) for item in await session.get_items()]

            return Conversation(say, texts)

        yield begin
        await sessions.close(made)

    return agent_turns(opened)
