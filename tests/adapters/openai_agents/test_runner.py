"""Runs of the SDK as parts of turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    GuardrailFunctionOutput,
    LocalShellCommandRequest,
    LocalShellTool,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    SQLiteSession,
    function_tool,
    handoff,
    input_guardrail,
)
from agents.mcp import MCPServer
from agents.retry import ModelRetrySettings
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from mcp import Tool as MCPTool
from mcp.types import CallToolResult, TextContent
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_output_item import LocalShellCall, LocalShellCallAction

import lash
from lash.adapters.openai_agents import LashRunner, LashSession
from lash.agents import ApprovalRequest, decide, pending_approvals
from lash.model.activity import TurnActivity

CONFIG = RunConfig(tracing_disabled=True)


class Bench:
    """An application without a worker, whose one agent runs a function of the test."""

    def __init__(self, app: lash.App) -> None:
        self.app = app
        self.calls: list[str] = []
        self.failing: Exception | None = None

    def fail_once(self) -> None:
        """Fail the turn after its run, so that it is run again."""
        self.failing = RuntimeError("crash")

    def crash(self) -> None:
        failing, self.failing = self.failing, None
        if failing is not None:
            raise failing


@asynccontextmanager
async def bench(url: str, run: Any) -> AsyncIterator[tuple[Bench, lash.SessionHandle]]:  # noqa: ANN401 (an agent function)
    app = lash.App(url, worker=False)
    made = Bench(app)

    @app.agent(retry=lash.Retry(max_attempts=3, first_pause_s=0.001, longest_pause_s=0.001, programming_errors=True))
    async def chat(turn: lash.Turn) -> str:
        reply = str(await run(made, turn))
        made.crash()
        return reply

    async with app:
        yield made, app.session("c", agent=chat)


async def drained(made: Bench, handle: lash.SessionHandle) -> str:
    """Run the session until nothing is left to do, and return the last reply."""
    async with asyncio.timeout(60):
        await made.app.drain()
        while await made.app.storage.queue.list("c") and not await pending_approvals(made.app.storage):
            await asyncio.sleep(0.01)
            await made.app.drain()
    messages = await handle.messages()
    return str(messages[-1].text) if messages else ""


def _tool(made: Bench, name: str, **options: Any) -> Any:  # noqa: ANN401 (a function tool)
    @function_tool(name_override=name, **options)
    async def call(order: str) -> str:
        made.calls.append(name)
        return f"{name} {order}"

    return call


def _calls(*names: str, reply: int = 1) -> list[Any]:
    return [function_call(name, {"order": "7"}, call_id=f"c{reply}.{place}") for place, name in enumerate(names)]


async def test_a_turn_that_runs_again_repeats_nothing(url: str) -> None:
    """Model calls and parallel tools are steps: after a failure of the turn they come from their records."""
    model = ScriptedModel([_calls("look", "find"), [assistant_message("done")]])

    async def run(made: Bench, turn: lash.Turn) -> object:
        agent = Agent(name="a", model=model, tools=[_tool(made, "look"), _tool(made, "find")])
        result = await LashRunner.run(turn, agent, turn.text, run_config=CONFIG)
        assert result.last_agent is agent
        return result.final_output

    async with bench(url, run) as (made, handle):
        made.fail_once()
        await handle.send("hi")
        assert await drained(made, handle) == "done"
    assert sorted(made.calls) == ["find", "look"]
    assert len(model.calls) == 2


async def test_the_session_of_a_turn_is_committed_with_it(url: str) -> None:
    """The next turn sees every item once; a turn is one commit, and a run that fails leaves no item."""
    model = ScriptedModel([_calls("look"), [assistant_message("one")], [assistant_message("two")]])
    failed = ScriptedModel([_calls("look"), ModelStep.raise_error(RuntimeError("provider is gone"))])

    async def run(made: Bench, turn: lash.Turn) -> object:
        session = LashSession.of(turn)
        agent = Agent(name="a", model=model, tools=[_tool(made, "look")])
        if turn.text == "fail":
            with pytest.raises(RuntimeError, match="provider"):
                await LashRunner.run(turn, agent.clone(model=failed), "fail", session=session, run_config=CONFIG)
            assert [item.get("type") for item in await session.get_items(1)] == ["message"], "that of the turn before"
            return "sorry"
        return (await LashRunner.run(turn, agent, turn.text, session=session, run_config=CONFIG)).final_output

    async with bench(url, run) as (made, handle):
        await handle.send("first")
        await drained(made, handle)
        before = await made.app.storage.session("c").revision()
        await handle.send("fail")
        await drained(made, handle)
        await handle.send("second")
        assert await drained(made, handle) == "two"
        assert await made.app.storage.session("c").revision() == before + 2
        texts = [message.text for message in await handle.messages() if message.text]
    assert texts == ["first", "one", "fail", "sorry", "second", "two"]
    seen = model.calls[2].input
    assert [item.get("type", item.get("role")) for item in seen] == [
        "user", "function_call", "function_call_output", "message", "user", "assistant", "user"
    ]  # fmt: skip
    assert [seen[0]["content"], seen[4]["content"], seen[5]["content"]] == ["first", "fail", "sorry"]
    assert seen[6]["content"] == "second"


async def test_the_last_items_of_a_long_conversation(url: str) -> None:
    """A limit counts items, of complete turns, however the nodes are divided."""
    model = ScriptedModel([[assistant_message(f"r{n}")] for n in range(9)])
    seen: list[list[str]] = []

    async def run(_made: Bench, turn: lash.Turn) -> object:
        session = LashSession.of(turn)
        items = await session.get_items(3)
        seen.append([str(item["content"] if item["role"] == "user" else item["content"][0]["text"]) for item in items])
        return (
            await LashRunner.run(turn, Agent(name="a", model=model), turn.text, session=session, run_config=CONFIG)
        ).final_output

    async with bench(url, run) as (made, handle):
        for n in range(9):
            await handle.send(f"u{n}")
            await drained(made, handle)
    assert seen[0] == []
    assert seen[8] == ["r6", "u7", "r7"]


async def test_eight_concurrent_messages_are_eight_whole_runs(url: str) -> None:
    """Each run sees the ones before it whole, and nothing of the others."""
    model = ScriptedModel([[assistant_message(f"r{n}")] for n in range(8)])
    app = lash.App(url)

    @app.agent
    async def chat(turn: lash.Turn) -> str:
        session = LashSession.of(turn)
        agent: Agent[Any] = Agent(name="a", model=model)
        return str((await LashRunner.run(turn, agent, turn.text, session=session, run_config=CONFIG)).final_output)

    async with app:
        await asyncio.gather(*(app.session("c", chat).ask(f"u{n}", timeout_s=60) for n in range(8)))
        texts = [message.text for message in await app.session("c").messages()]
    assert sorted(texts[::2]) == [f"u{n}" for n in range(8)]
    assert texts[1::2] == [f"r{n}" for n in range(8)]
    assert [len(call.input) for call in model.calls] == [1, 3, 5, 7, 9, 11, 13, 15]


async def test_an_approval_parks_the_turn(url: str) -> None:
    """The call runs once a person has agreed, and the model gets the reason of a denial."""
    asked: list[str] = []
    model = ScriptedModel([_calls("pay", "refund"), [assistant_message("done")]])

    async def ask(request: ApprovalRequest) -> None:
        asked.append(request.call.name)

    async def run(made: Bench, turn: lash.Turn) -> object:
        tools = [_tool(made, "pay", needs_approval=True), _tool(made, "refund", needs_approval=True)]
        agent = Agent(name="a", model=model, tools=tools)
        return (await LashRunner.run(turn, agent, turn.text, on_approval=ask, run_config=CONFIG)).final_output

    async with bench(url, run) as (made, handle):
        await handle.send("hi")
        await drained(made, handle)
        waiting = await pending_approvals(made.app.storage)
        assert sorted(each.call.name for each in waiting) == ["pay", "refund"]
        assert await made.app.storage.leases.holder("c") is None, "a parked turn holds no lease"
        for each in waiting:
            await decide(made.app.storage, each, approved=each.call.name == "pay", text="not today")
        assert await drained(made, handle) == "done"
    assert (made.calls, sorted(asked)) == (["pay"], ["pay", "refund"])
    outputs = {item["call_id"]: item["output"] for item in model.calls[1].input if "output" in item}
    assert outputs == {"c1.0": "pay 7", "c1.1": "The call was denied. not today"}


async def test_an_agent_as_a_tool_is_recorded_inside(url: str) -> None:
    """Its model calls and tools are steps of their own, and its approvals park the turn."""
    inner = ScriptedModel([_calls("look", reply=2), _calls("pay", reply=3), [assistant_message("inner done")]])
    outer = ScriptedModel([[function_call("helper", {"input": "go"}, call_id="c1")], [assistant_message("outer done")]])

    async def run(made: Bench, turn: lash.Turn) -> object:
        tools = [_tool(made, "look"), _tool(made, "pay", needs_approval=True)]
        helper = Agent(name="helper", model=inner, tools=tools).as_tool("helper", "helps")
        agent = Agent(name="a", model=outer, tools=[helper])
        return (await LashRunner.run(turn, agent, turn.text, run_config=CONFIG)).final_output

    async with bench(url, run) as (made, handle):
        await handle.send("hi")
        await drained(made, handle)
        (waiting,) = await pending_approvals(made.app.storage)
        assert waiting.call.name == "pay"
        made.fail_once()
        await decide(made.app.storage, waiting, approved=True)
        assert await drained(made, handle) == "outer done"
    assert made.calls == ["look", "pay"]
    assert (len(inner.calls), len(outer.calls)) == (3, 2)


async def test_hand_offs_and_guardrails_happen_once(url: str) -> None:
    """What the application does at a hand-off, and the verdict of a guardrail, are steps."""
    first = ScriptedModel([[function_call("transfer_to_expert", {}, call_id="h1")]])
    second = ScriptedModel([[assistant_message("expert says")]])

    async def run(made: Bench, turn: lash.Turn) -> object:
        @input_guardrail
        async def check(_ctx: RunContextWrapper[Any], _agent: Agent[Any], _given: object) -> GuardrailFunctionOutput:
            made.calls.append("check")
            return GuardrailFunctionOutput(output_info={"fine": True}, tripwire_triggered=False)

        def moved(_ctx: RunContextWrapper[Any]) -> None:
            made.calls.append("moved")

        expert = Agent(name="expert", model=second)
        agent = Agent(name="a", model=first, handoffs=[handoff(expert, on_handoff=moved)], input_guardrails=[check])
        expert.handoffs = [agent]
        result = await LashRunner.run(turn, agent, turn.text, run_config=CONFIG)
        assert result.last_agent is expert
        assert result.input_guardrail_results[0].output.output_info == {"fine": True}
        return result.final_output

    async with bench(url, run) as (made, handle):
        made.fail_once()
        await handle.send("hi")
        assert await drained(made, handle) == "expert says"
    assert sorted(made.calls) == ["check", "moved"]
    assert (len(first.calls), len(second.calls)) == (1, 1)


class Clock(MCPServer):
    """An MCP server in memory."""

    def __init__(self, made: Bench) -> None:
        super().__init__(use_structured_content=False)
        self._made = made

    @property
    def name(self) -> str:
        return "clock"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *_args: object, **_kwargs: object) -> list[MCPTool]:
        self._made.calls.append("list")
        return [MCPTool(name="time", inputSchema={"type": "object", "properties": {}})]

    async def call_tool(self, tool_name: str, *_args: object, **_kwargs: object) -> CallToolResult:
        self._made.calls.append(tool_name)
        return CallToolResult(content=[TextContent(type="text", text="noon")])

    async def list_prompts(self) -> Any: ...  # noqa: ANN401

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any: ...  # noqa: ANN401


async def test_tools_of_mcp_servers_are_steps(url: str) -> None:
    """The list of tools and each call are recorded: a later attempt needs no server."""
    model = ScriptedModel([[function_call("time", {}, call_id="t1")], [assistant_message("noon")]])

    async def run(made: Bench, turn: lash.Turn) -> object:
        agent = Agent(name="a", model=model, mcp_servers=[Clock(made)])
        return (await LashRunner.run(turn, agent, turn.text, run_config=CONFIG)).final_output

    async with bench(url, run) as (made, handle):
        made.fail_once()
        await handle.send("hi")
        assert await drained(made, handle) == "noon"
    assert made.calls == ["list", "time", "list"]
    assert [item["output"] for item in model.calls[1].input if "output" in item] == [
        [{"type": "input_text", "text": "noon"}]
    ]


def _custom_call(call_id: str) -> ResponseCustomToolCall:
    return ResponseCustomToolCall(type="custom_tool_call", call_id=call_id, name="note", input="plain text")


def _shell_call(call_id: str) -> ResponseFunctionShellToolCall:
    action = {"commands": ["ls"], "timeout_ms": 1_000}
    return ResponseFunctionShellToolCall.model_validate(
        {"type": "shell_call", "id": f"sh_{call_id}", "call_id": call_id, "status": "completed", "action": action}
    )


def _local_shell_call(call_id: str) -> LocalShellCall:
    action = LocalShellCallAction(type="exec", command=["ls"], env={})
    return LocalShellCall(type="local_shell_call", id="l1", call_id=call_id, status="completed", action=action)


def _machine_tools(made: Bench) -> list[Any]:
    """A tool with plain text, a shell with several commands, and the older shell."""

    async def note(_context: ToolContext[Any], text: str) -> str:
        made.calls.append(f"note {text}")
        return "noted"

    def shell(request: ShellCommandRequest) -> ShellResult:
        made.calls.append(f"shell {request.data.action.commands}")
        outcome = ShellCallOutcome(type="exit", exit_code=3)
        return ShellResult(output=[ShellCommandOutput(stdout="a.txt", outcome=outcome, command="ls")])

    async def local_shell(request: LocalShellCommandRequest) -> str:
        made.calls.append(f"local {request.data.action.command}")
        return "b.txt"

    return [
        CustomTool(name="note", description="Takes a note.", on_invoke_tool=note),
        ShellTool(executor=shell),
        LocalShellTool(executor=local_shell),
    ]


async def test_shells_and_custom_tools_are_steps(url: str) -> None:
    """After a failure of the turn none runs again, and the model reads the same results, also what a shell returned."""
    calls = [_custom_call("c1"), _shell_call("c2"), _local_shell_call("c3")]
    model = ScriptedModel([calls, [assistant_message("done")]])
    inputs: list[Any] = []

    async def run(made: Bench, turn: lash.Turn) -> object:
        agent = Agent(name="a", model=model, tools=_machine_tools(made))
        result = await LashRunner.run(turn, agent, turn.text, run_config=CONFIG)
        inputs.append(result.to_input_list())
        return result.final_output

    async with bench(url, run) as (made, handle):
        made.fail_once()
        await handle.send("hi")
        assert await drained(made, handle) == "done"
    assert sorted(made.calls) == ["local ['ls']", "note plain text", "shell ['ls']"]
    assert len(model.calls) == 2
    assert inputs[0] == inputs[1], "what was recorded reads as what has happened"
    outputs = {item["call_id"]: item for item in inputs[0] if str(item.get("type", "")).endswith("_output")}
    assert outputs["c1"]["output"] == "noted"
    (shown,) = outputs["c2"]["output"]
    assert (shown["stdout"], shown["outcome"]) == ("a.txt", {"type": "exit", "exit_code": 3})
    assert "b.txt" in outputs["c3"]["output"]


async def test_a_streamed_run_is_seen_by_observers_and_continues(url: str) -> None:
    """Pieces of text come to observers with a cursor; a later attempt gets the last event of each reply alone."""
    model = ScriptedModel([_calls("look"), _calls("pay", reply=2), [assistant_message("all is done")]])
    events: list[list[str]] = []

    async def run(made: Bench, turn: lash.Turn) -> object:
        agent = Agent(name="a", model=model, tools=[_tool(made, "look"), _tool(made, "pay", needs_approval=True)])
        stream = LashRunner.run_streamed(turn, agent, turn.text, session=LashSession.of(turn), run_config=CONFIG)
        events.append([])
        async for event in stream.stream_events():
            events[-1].append(getattr(getattr(event, "data", None), "type", event.type))
        return stream.final_output

    async with bench(url, run) as (made, handle):
        cursor = await handle.cursor()
        await handle.send("hi")
        await drained(made, handle)
        (waiting,) = await pending_approvals(made.app.storage)
        await decide(made.app.storage, waiting, approved=True)
        assert await drained(made, handle) == "all is done"
        shown: list[Any] = []
        async with asyncio.timeout(30):
            async for each in handle.observe(cursor):
                if isinstance(each, TurnActivity):
                    shown.append(each.payload)
                if any("text" in payload for payload in shown):
                    break
    assert made.calls == ["look", "pay"]
    assert len(model.calls) == 3
    assert events[1].count("response.completed") == 3
    assert "".join(piece["text"] for piece in shown if "text" in piece) == "all is done"
    assert [next(iter(each)) for each in shown[:4]] == ["model_call", "tool_call", "tool_result", "model_call"]


async def test_a_failed_model_call_is_not_recorded(url: str) -> None:
    """The retries of the SDK are its own: only the reply is a step, and a later attempt sees that alone."""
    model = ScriptedModel([ModelStep.raise_error(ConnectionError("away")), [assistant_message("back")]])

    async def run(_made: Bench, turn: lash.Turn) -> object:
        settings = ModelSettings(retry=ModelRetrySettings(max_retries=2, policy=lambda _context: True))
        agent = Agent(name="a", model=model, model_settings=settings)
        return (await LashRunner.run(turn, agent, turn.text, run_config=CONFIG)).final_output

    async with bench(url, run) as (made, handle):
        made.fail_once()
        await handle.send("hi")
        assert await drained(made, handle) == "back"
    assert len(model.calls) == 2


async def test_two_runs_in_a_turn_do_not_share_records(url: str) -> None:
    """Servers that number the calls of each reply from 0 are harmless."""
    model = ScriptedModel([_calls("look"), [assistant_message("a")], _calls("look"), [assistant_message("b")]])

    async def run(made: Bench, turn: lash.Turn) -> object:
        agent = Agent(name="a", model=model, tools=[_tool(made, "look")])
        results = [await LashRunner.run(turn, agent, turn.text, run_config=CONFIG) for _ in range(2)]
        return "".join(str(result.final_output) for result in results)

    async with bench(url, run) as (made, handle):
        made.fail_once()
        await handle.send("hi")
        assert await drained(made, handle) == "ab"
    assert made.calls == ["look", "look"]


async def test_what_cannot_be_recorded_is_refused(url: str) -> None:
    """Runs outside of a turn, sessions of other kinds, and tools that change this machine raise ConfigError."""
    agent: Agent[Any] = Agent(name="a", model=ScriptedModel([[assistant_message("plain")]]))
    kept: list[lash.Turn] = []
    said: list[str] = []

    async def run(_made: Bench, turn: lash.Turn) -> object:
        kept.append(turn)
        patching = agent.clone(tools=[ApplyPatchTool(editor=object())])  # type: ignore[arg-type]
        for options in ({"session": SQLiteSession("s")}, {"session": LashSession("s", url)}):
            with pytest.raises(lash.ConfigError) as raised:
                await LashRunner.run(turn, agent, "hi", **options)
            said.append(str(raised.value))
        with pytest.raises(lash.ConfigError, match="function tool"):
            await LashRunner.run(turn, patching, "hi")
        return "refused"

    async with bench(url, run) as (made, handle):
        await handle.send("hi")
        assert await drained(made, handle) == "refused"
        with pytest.raises(lash.ConfigError, match="inside the turn"):
            await LashRunner.run(kept[0], agent, "hi")
    assert all("LashSession.of(turn)" in text for text in said)
    assert (await Runner.run(agent, "hi", run_config=CONFIG)).final_output == "plain"
