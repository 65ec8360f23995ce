"""What runs of an agent rely on inside turns and processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

import lash
from lash.adapters.pydantic_ai import DeferredCall, LashDurability, reply
from tests.adapters.pydantic_ai.marked import tool_returns

RETRY = lash.Retry(max_attempts=3, first_pause_s=0)
Body = Callable[[lash.Turn], Awaitable[str]]


class Calls:
    """Counts what ran, and makes a model that calls tools once and then replies with what they returned."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def model(self, *calls: ToolCallPart, name: str = "model") -> Model:
        async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
            self.ran.append(name)
            returned = tool_returns(messages)
            if calls and not returned:
                return ModelResponse(parts=list(calls))
            return ModelResponse(parts=[TextPart(" ".join(returned) or "done")])

        return FunctionModel(answer)

    def count(self, name: str) -> int:
        return self.ran.count(name)


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def _ask(url: str, body: Body, text: str = "hi") -> str:
    """Run an agent of an application on one message, and return its reply."""
    app = lash.App(url)
    agent = app.agent(name="agent", retry=RETRY)(body)
    async with app:
        return await app.session("chat", agent).ask(text, timeout_s=60)


async def _ask_and_crash(url: str, body: Body) -> str:
    """Run an agent that fails behind its run in its first attempt."""

    async def crashing(turn: lash.Turn) -> str:
        answer = await body(turn)
        if turn.attempt == 1:
            raise RuntimeError("the worker crashes here")
        return answer

    return await _ask(url, crashing)


async def test_a_run_outside_of_a_turn_is_refused(calls: Calls) -> None:
    """It is refused before the model is called, however it is started; ``required=False`` permits it."""
    agent = Agent(calls.model(), name="a", capabilities=[LashDurability()])
    with pytest.raises(lash.ConfigError, match="outside of a turn"):
        await agent.run("hi")
    with pytest.raises(lash.ConfigError, match="outside of a turn"):
        async with agent.iter("hi"):
            pass
    assert calls.ran == []
    plain = Agent(calls.model(), name="a", capabilities=[LashDurability(required=False)])
    assert (await plain.run("hi")).output == "done"


async def test_recorded_calls_are_not_repeated(url: str, calls: Calls) -> None:
    """Model calls, parallel tools, a retry that a tool asked for and a failed one are as in the first attempt."""
    parts = [ToolCallPart("add", {"a": n, "b": 1}, f"c{n}") for n in range(3)]
    agent = Agent(calls.model(*parts), name="a", capabilities=[LashDurability()])
    together = asyncio.Barrier(3)

    @agent.tool_plain
    async def add(a: int, b: int) -> int:
        calls.ran.append("add")
        await asyncio.wait_for(together.wait(), 30)
        return a + b

    async def body(turn: lash.Turn) -> str:
        return (await agent.run(turn.text)).output

    assert await _ask_and_crash(url, body) == "1 2 3"
    assert (calls.count("model"), calls.count("add")) == (2, 3)


async def test_runs_in_one_turn_do_not_share_records(url: str, calls: Calls) -> None:
    """An agent that runs twice, at the same time, with ids of calls that repeat, has steps of its own each time."""
    agent = Agent(calls.model(ToolCallPart("say", {"n": 1}, "call")), name="a", capabilities=[LashDurability()])

    @agent.tool
    async def say(ctx: RunContext[str], n: int) -> str:
        calls.ran.append("say")
        return f"{ctx.deps}{n}"

    async def run(deps: str, **options: Any) -> str:  # noqa: ANN401 (theirs)
        return str((await agent.run("hi", deps=deps, **options)).output)

    async def body(turn: lash.Turn) -> str:
        one = await run("a")
        two = await turn.gather(run("b"), run("c"))
        three = await asyncio.gather(run("d", run_id="mine"), run("e"))
        return " ".join([one, *two, *three])

    assert await _ask_and_crash(url, body) == "a1 b1 c1 d1 e1"
    assert (calls.count("model"), calls.count("say")) == (10, 5)


async def test_a_tool_runs_another_agent(url: str, calls: Calls) -> None:
    """Inside a step the run is part of the step; in a tool that is none, its calls are recorded themselves."""
    inner = Agent(calls.model(name="inner"), name="inner", capabilities=[LashDurability()])
    parts = [ToolCallPart(name, {}, f"{name}{n}") for name in ("step", "body") for n in range(2)]
    outer = Agent(calls.model(*parts), name="outer", capabilities=[LashDurability()])

    async def ask_inner() -> str:
        return str((await inner.run("hi")).output)

    @outer.tool_plain
    async def step() -> str:
        return await ask_inner()

    @outer.tool_plain(metadata={"lash": False})
    async def body() -> str:
        calls.ran.append("body")
        return await ask_inner()

    async def run(turn: lash.Turn) -> str:
        return (await outer.run(turn.text)).output

    assert await _ask_and_crash(url, run) == "done done done done"
    assert (calls.count("model"), calls.count("inner"), calls.count("body")) == (2, 4, 4)


async def test_what_a_tool_raises_for_the_model_is_recorded(url: str) -> None:
    """A tool that asks the model to retry does not run again in the next attempt."""
    ran: list[int] = []

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [text for text in tool_returns(messages) if text.startswith("picked")]
        if returned:
            return ModelResponse(parts=[TextPart(returned[0])])
        return ModelResponse(parts=[ToolCallPart("pick", {"n": len(messages)}, f"c{len(messages)}")])

    agent = Agent(FunctionModel(answer), name="a", capabilities=[LashDurability()])

    @agent.tool_plain
    async def pick(n: int) -> str:
        ran.append(n)
        if n < 3:
            raise ModelRetry("more")
        return f"picked {n}"

    async def body(turn: lash.Turn) -> str:
        return (await agent.run(turn.text)).output

    assert await _ask_and_crash(url, body) == "picked 3"
    assert ran == [1, 3]


async def test_a_fallback_falls_back_again(url: str, calls: Calls) -> None:
    """The recorded error of the first model has its class in the next attempt, which takes the second model too."""

    async def refuse(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        calls.ran.append("first")
        raise ModelHTTPError.for_category(ModelRateLimitError, status_code=429, model_name="first", body={"a": 1})

    async def body(turn: lash.Turn) -> str:
        first, second = FunctionModel(refuse, model_name="first"), calls.model(name="second")
        models = {"first": first, "second": second}
        agent = Agent(first, name="a", capabilities=[LashDurability(models=models)])
        with pytest.raises(ModelRateLimitError, match="status_code: 429, model_name: first"):
            await agent.run(turn.text)
        return (await agent.run(turn.text, model="second")).output

    assert await _ask_and_crash(url, body) == "done"
    assert (calls.count("first"), calls.count("second")) == (1, 1)


async def test_a_fallback_model_is_one_step(url: str, calls: Calls) -> None:
    """pydantic-ai's own FallbackModel works inside the step of a model call."""

    async def refuse(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        calls.ran.append("first")
        raise ModelHTTPError(503, "first")

    model = FallbackModel(FunctionModel(refuse, model_name="first"), calls.model(name="second"))
    agent = Agent(model, name="a", capabilities=[LashDurability()])

    async def body(turn: lash.Turn) -> str:
        return (await agent.run(turn.text)).output

    assert await _ask_and_crash(url, body) == "done"
    assert (calls.count("first"), calls.count("second")) == (1, 1)


async def test_tools_of_another_program_are_waits(url: str, calls: Calls) -> None:
    """The calls of one response are asked for together, and the turn is parked until both have a result."""
    asked: list[DeferredCall] = []

    async def on_deferred(call: DeferredCall) -> None:
        asked.append(call)

    parts = [ToolCallPart("look", {"n": n}, f"c{n}") for n in range(2)]
    agent = Agent(
        calls.model(*parts),
        name="a",
        toolsets=[ExternalToolset([_look()], id="theirs")],
        capabilities=[LashDurability(on_deferred=on_deferred)],
    )
    app = lash.App(url, worker=False)

    @app.agent
    async def body(turn: lash.Turn) -> str:
        return (await agent.run(turn.text)).output

    async with app:
        chat = app.session("chat", body)
        await chat.send("hi")
        await app.drain()
        assert sorted((call.kind, call.call.id) for call in asked) == [("call", "c0"), ("call", "c1")]
        keys = {call.call.id: call.key for call in asked}
        await app.resolve(keys["c1"], {"found": 1})
        await app.drain()
        assert await chat.messages() == []
        await app.resolve(keys["c0"], "nothing")
        await app.drain()
        assert (await chat.messages())[-1].text == "nothing {'found': 1}"
    assert (len(asked), calls.count("model")) == (2, 2)


def _look() -> Any:  # noqa: ANN401 (theirs)
    from pydantic_ai.tools import ToolDefinition

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return ToolDefinition(name="look", parameters_json_schema=schema)


async def test_a_denied_call_is_answered_to_the_model(url: str, calls: Calls) -> None:
    """A denial, also one because no decision came in time, is the result of the tool."""
    agent = Agent(
        calls.model(ToolCallPart("pay", {}, "c1")), name="a", capabilities=[LashDurability(deferred_timeout_s=0.05)]
    )

    @agent.tool_plain(requires_approval=True)
    async def pay() -> str:
        calls.ran.append("pay")
        return "paid"

    async def body(turn: lash.Turn) -> str:
        return (await agent.run(turn.text)).output

    assert "No decision came within 0.05 s." in await _ask(url, body)
    assert calls.count("pay") == 0


async def test_deferred_requests_can_stay_an_output(url: str, calls: Calls) -> None:
    """With ``deferred=False`` the run returns them, as without lash."""
    agent = Agent(
        calls.model(ToolCallPart("pay", {}, "c1")),
        name="a",
        output_type=[str, DeferredToolRequests],
        capabilities=[LashDurability(deferred=False)],
    )

    @agent.tool_plain(requires_approval=True)
    async def pay() -> str:
        return "paid"

    async def body(turn: lash.Turn) -> str:
        output = (await agent.run(turn.text)).output
        assert isinstance(output, DeferredToolRequests)
        return output.approvals[0].tool_name

    assert await _ask(url, body) == "pay"


async def test_streams_inside_a_turn(url: str) -> None:
    """`run_stream` and `run_stream_events` replay the recorded response; observers see the pieces once."""
    called: list[str] = []

    async def pieces(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        called.append("model")
        for piece in ("one ", "two ", "three"):
            yield piece

    agent = Agent(FunctionModel(stream_function=pieces), name="a", capabilities=[LashDurability()])
    app = lash.App(url, worker=False)

    @app.agent(retry=RETRY)
    async def body(turn: lash.Turn) -> str:
        async with agent.run_stream(turn.text) as streamed:
            text = "".join([piece async for piece in streamed.stream_text(delta=True)])
        kinds = [event.event_kind async for event in _events(agent, turn.text)]
        if turn.attempt == 1:
            raise RuntimeError("the worker crashes here")
        return f"{text}, {kinds.count('agent_run_result')}"

    async with app:
        chat = app.session("chat", body)
        await chat.send("hi")
        cursor = await chat.cursor()
        while not await chat.messages():
            await app.drain()
        assert (await chat.messages())[-1].text == "one two three, 1"
        seen: list[str] = []
        async for event in chat.observe(cursor):
            payload = getattr(event, "payload", None)
            if isinstance(payload, dict) and "text" in payload:
                seen.append(payload["text"])
            if isinstance(event, lash.Committed):
                break
    assert seen == ["one ", "two ", "three"] * 2
    assert len(called) == 2


async def _events(agent: Agent[None, str], text: str) -> AsyncIterator[Any]:
    async with agent.run_stream_events(text) as events:
        async for event in events:
            yield event


async def test_a_run_inside_a_process(url: str, calls: Calls) -> None:
    """Processes run agents too, and wait for approvals."""
    asked: list[DeferredCall] = []

    async def on_deferred(call: DeferredCall) -> None:
        asked.append(call)

    agent = Agent(
        calls.model(ToolCallPart("pay", {}, "c1")), name="a", capabilities=[LashDurability(on_deferred=on_deferred)]
    )

    @agent.tool_plain(requires_approval=True)
    async def pay() -> str:
        calls.ran.append("pay")
        return "paid"

    app = lash.App(url)

    @app.process
    async def report(_: lash.Context) -> str:
        return (await agent.run("hi")).output

    async with app:
        handle = await app.start(report)
        async with asyncio.timeout(60):
            while not asked:  # noqa: ASYNC110 (no event says so)
                await asyncio.sleep(0.01)
        await app.resolve(asked[0].key, True)
        assert await handle.result(timeout_s=60) == "paid"
    assert (calls.count("model"), calls.count("pay"), len(asked)) == (2, 1, 1)


async def test_mcp_calls_are_steps(url: str, calls: Calls) -> None:
    """Neither the list of tools nor a call is asked of the server again."""
    from fastmcp import FastMCP
    from pydantic_ai.mcp import MCPToolset

    server: FastMCP[None] = FastMCP("server")

    @server.tool
    async def echo(text: str) -> str:
        calls.ran.append("echo")
        return f"echo {text}"

    agent = Agent(
        calls.model(ToolCallPart("echo", {"text": "hi"}, "c1")),
        name="a",
        toolsets=[MCPToolset(server, id="server")],
        capabilities=[LashDurability()],
    )

    async def body(turn: lash.Turn) -> str:
        return (await agent.run(turn.text)).output

    assert await _ask_and_crash(url, body) == "echo hi"
    assert (calls.count("model"), calls.count("echo")) == (2, 1)


async def test_what_is_not_durable_is_refused(url: str, calls: Calls) -> None:
    """Toolsets that come with a run, wrong options and results that are not JSON fail with the reason."""
    late: FunctionToolset[None] = FunctionToolset(id="late")
    late.add_function(_nothing, name="late")
    agent = Agent(calls.model(ToolCallPart("thing", {}, "c1")), name="a", capabilities=[LashDurability()])
    wrong = Agent(calls.model(ToolCallPart("thing", {}, "c1")), name="b", capabilities=[LashDurability()])

    @agent.tool_plain
    async def thing() -> object:
        return object()

    wrong.tool_plain(name="thing", metadata={"lash": {"twice": True}})(_nothing)

    async def body(turn: lash.Turn) -> str:
        if turn.text == "late":
            return (await agent.run("hi", toolsets=[late])).output
        return (await (agent if turn.text == "json" else wrong).run("hi")).output

    for text, reason in (("late", "cannot be added at runtime"), ("json", "as JSON"), ("wrong", "twice.*known: once")):
        with pytest.raises(lash.TurnFailed, match=re.compile(reason, re.DOTALL)):
            await _ask(url, body, text)


async def _nothing() -> str:
    return "nothing"


async def test_tools_that_are_not_steps_may_come_with_a_run(url: str, calls: Calls) -> None:
    """A toolset of which no tool is a step is accepted and runs in every attempt; one with a step in it is refused."""
    agent = Agent(calls.model(ToolCallPart("plain", {}, "c1")), name="a", capabilities=[LashDurability()])

    async def plain(ctx: RunContext[None]) -> str:
        calls.ran.append("plain")
        return f"run {ctx.run_id is not None}"

    late: FunctionToolset[None] = FunctionToolset(id="late")
    late.add_function(plain, metadata={"lash": False})
    mixed: FunctionToolset[None] = FunctionToolset(id="mixed")
    mixed.add_function(plain, metadata={"lash": False})
    mixed.add_function(_nothing, name="nothing")

    async def body(turn: lash.Turn) -> str:
        with pytest.raises(UserError, match="cannot be added at runtime"):
            await agent.run("hi", toolsets=[mixed])
        return (await agent.run("hi", toolsets=[late])).output

    assert await _ask_and_crash(url, body) == "run True"
    assert (calls.count("model"), calls.count("plain")) == (2, 2)


async def test_the_output_of_a_run_is_the_reply(url: str) -> None:
    """A typed output comes back as its type."""

    async def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"response": [1, 2]}, "c1")])

    agent = Agent(FunctionModel(answer), name="a", output_type=list[int], capabilities=[LashDurability()])
    app = lash.App(url)

    @app.agent
    async def body(turn: lash.Turn) -> lash.Message:
        return reply(turn, await agent.run(turn.text))

    async with app:
        assert await app.session("chat", body).ask("hi", of_type=list[int], timeout_s=60) == [1, 2]
