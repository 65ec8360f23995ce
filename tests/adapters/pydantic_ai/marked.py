"""An agent that leaves a file for each call of its model and its tools; some calls wait for a file named ``go``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

import lash
from lash.adapters.pydantic_ai import LashDurability, history, reply


class Marks:
    """Files in a directory, one for each time that something happened."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def leave(self, name: str) -> int:
        """Note that it happened; return how often it has."""
        count = len(list(self.directory.glob(f"{name}.*"))) + 1
        (self.directory / f"{name}.{count}").touch()
        return count

    def count(self, name: str) -> int:
        return len(list(self.directory.glob(f"{name}.*")))

    async def go(self) -> None:
        """Wait for the test, which may kill this process meanwhile."""
        await self.wait("go")

    async def wait(self, name: str) -> None:
        while not (self.directory / name).exists():  # noqa: ASYNC110 (a file has no event)
            await asyncio.sleep(0.02)


def tool_returns(messages: list[ModelMessage]) -> list[str]:
    """Return what tools have returned since the last prompt of a user."""
    parts = [part for message in messages for part in message.parts]
    last = max(place for place, part in enumerate(parts) if part.part_kind == "user-prompt")
    return [str(part.content) for part in parts[last:] if part.part_kind == "tool-return"]


def declare(app: lash.App, marks: Marks, *, stream: bool = False) -> object:
    """Declare the agent on an application, and return its definition."""
    calls = [("fast", '{"n": 1}', "c1"), ("slow", '{"n": 2}', "c2"), ("fast", '{"n": 3}', "c3")]

    async def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = tool_returns(messages)
        marks.leave(f"model{len(returned)}")
        usage = RequestUsage(input_tokens=10, output_tokens=1)
        if not returned:
            return ModelResponse(parts=[ToolCallPart(*call) for call in calls], usage=usage)
        return ModelResponse(parts=[TextPart(" ".join(returned))], usage=usage)

    async def streamed(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        returned = tool_returns(messages)
        marks.leave(f"model{len(returned)}")
        if not returned:
            for place, (name, arguments, call_id) in enumerate(calls):
                yield {place: DeltaToolCall(name=name, json_args=arguments, tool_call_id=call_id)}
            return
        for place, piece in enumerate(returned):
            yield piece if place == 0 else f" {piece}"
            if place == 0:
                await marks.wait("go on")

    agent = Agent(
        FunctionModel(model, stream_function=streamed), name="marked", capabilities=[LashDurability(stream=stream)]
    )

    @agent.tool_plain
    async def fast(n: int) -> str:
        marks.leave(f"fast{n}")
        return f"fast{n}"

    @agent.tool_plain
    async def slow(n: int) -> str:
        marks.leave(f"slow{n}")
        await marks.go()
        return f"slow{n}"

    @agent.tool_plain(requires_approval=True)
    async def pay(n: int) -> str:
        marks.leave(f"pay{n}")
        return f"paid {n}"

    @agent.tool_plain(metadata={"lash": {"once": True}})
    async def once(n: int) -> str:
        marks.leave(f"once{n}")
        await marks.go()
        return f"once{n}"

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def marked(turn: lash.Turn) -> lash.Message:
        if turn.text.startswith("use "):
            calls[:] = [(turn.text.removeprefix("use "), '{"n": 1}', "c1")]
        return reply(turn, await agent.run(turn.text, message_history=history(turn)))

    return marked
