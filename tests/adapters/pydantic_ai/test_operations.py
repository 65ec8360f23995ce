"""Every kind of operation that pydantic-ai hands to a durability capability is a step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import DynamicToolset, FunctionToolset

import lash
from lash.adapters.pydantic_ai import LashDurability
from tests.adapters.pydantic_ai.marked import tool_returns


class Audit(AbstractCapability[Any]):
    """A capability with an operation of its own."""

    id = "audit"

    def __init__(self, ran: list[str]) -> None:
        self._ran = ran

    async def before_run(self, ctx: RunContext[Any]) -> None:
        await self.note(ctx, "begin")

    @durable_operation("note")
    async def note(self, ctx: RunContext[Any], what: str) -> int:
        self._ran.append(f"note {what}")
        return len(self._ran)


async def _ask_twice(url: str, agent: Agent[None, str]) -> str:
    """Run an agent in a turn whose first attempt fails behind the run."""
    app = lash.App(url)

    @app.agent(retry=lash.Retry(max_attempts=2, first_pause_s=0))
    async def body(turn: lash.Turn) -> str:
        output = (await agent.run(turn.text)).output
        if turn.attempt == 1:
            raise RuntimeError("the worker crashes here")
        return output

    async with app:
        return await app.session("chat", body).ask("hi", timeout_s=60)


def _calling(*names: str) -> FunctionModel:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = tool_returns(messages)
        if not returned:
            return ModelResponse(parts=[ToolCallPart(name, {}, name) for name in names])
        return ModelResponse(parts=[TextPart(" ".join(returned))])

    return FunctionModel(answer)


async def test_operations_of_every_kind_run_once(url: str) -> None:
    """A tool of a dynamic toolset, a blocking tool and an operation of a capability are not repeated."""
    ran: list[str] = []

    async def dynamic() -> str:
        ran.append("dynamic")
        return "d"

    def blocking() -> str:
        ran.append("blocking")
        return "b"

    toolset: DynamicToolset[None] = DynamicToolset(lambda _: FunctionToolset(tools=[dynamic]), id="dynamic")
    agent = Agent(
        _calling("dynamic", "blocking"),
        name="a",
        tools=[blocking],
        toolsets=[toolset],
        capabilities=[Audit(ran), LashDurability()],
    )
    assert await _ask_twice(url, agent) == "d b"
    assert sorted(ran) == ["blocking", "dynamic", "note begin"]


async def test_options_of_a_tool(url: str) -> None:
    """``retry`` repeats the tool inside its step, and ``timeout_s`` ends it: the run fails and nothing is committed."""
    ran: list[str] = []
    agent = Agent(_calling("flaky"), name="a", capabilities=[LashDurability()])
    slow = Agent(_calling("never"), name="b", capabilities=[LashDurability()])

    @agent.tool_plain(metadata={"lash": {"retry": {"max_attempts": 3, "first_pause_s": 0}}})
    async def flaky() -> str:
        ran.append("flaky")
        if len(ran) < 3:
            raise ConnectionError("not yet")
        return "third time"

    @slow.tool_plain(metadata={"lash": {"timeout_s": 0.05}})
    async def never() -> str:
        await asyncio.sleep(600)
        return "never"

    assert await _ask_twice(url, agent) == "third time"
    assert ran == ["flaky"] * 3
    with pytest.raises(lash.TurnFailed, match=r"0\.05"):
        await _ask_twice(url, slow)
