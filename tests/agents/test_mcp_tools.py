"""Tools of MCP servers as tools of an agent, with servers of the official SDK: objects, programs, and over HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.server import MCPServer
from mcp.types import CallToolResult, ImageContent, TextContent

import lash
from lash.agents import Agent, Approval, ApprovalRequest, ScriptedModel, ToolsUnavailable, call, tool
from lash.agents.mcp import ToolOptions, mcp_tools
from lash.errors import ConfigError, TurnFailed
from lash.model.session.message import Part, PartKind
from tests.agents.mcp_shop import calls, pids, shop
from tests.cli.kit import environment
from tests.protocols.mcp_kit import serving
from tests.runtime.worker_kit import until

QUICK = lash.Retry(max_attempts=3, first_pause_s=0.01, factor=1)
FAST = ToolOptions(retry=QUICK)


def program(directory: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "tests.agents.mcp_shop", str(directory)], env=environment()
    )


def results(model: ScriptedModel) -> list[tuple[str, str, bool]]:
    """Return the tool results in the model's last request: the tool, the text, and whether it failed."""
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    return [_result(part) for part in parts if part.kind is PartKind.TOOL_RESULT]


def _result(part: Part) -> tuple[str, str, bool]:
    return part.tool_name or "", part.content, part.response_meta is not None


async def test_the_model_sees_and_calls_the_tools_of_a_server(tmp_path: Path) -> None:
    """Names have the prefix, the schema is that of the server, and errors of a tool are answers."""
    model = ScriptedModel([call("shop_look", order="7"), call("shop_refuse", order="8")], "done")
    agent = Agent("assistant", model, tools=[mcp_tools("shop", shop(tmp_path))])
    assert await agent.run("where is it?") == "done"
    specs = {spec.name: spec for spec in model.requests[0].tools}
    assert list(specs) == ["shop_look", "shop_refuse", "shop_pay", "shop_crash"]
    assert specs["shop_look"].description == "Return what happened to an order."
    assert specs["shop_look"].parameters["properties"] == {"order": {"title": "Order", "type": "string"}}
    assert results(model) == [
        ("shop_look", "7 is late", False),
        ("shop_refuse", "Error executing tool refuse: 8 is not yours", True),
    ]
    assert calls(tmp_path) == ["look", "refuse"]


async def test_wrong_calls_are_answered(tmp_path: Path) -> None:
    """An unknown tool, a tool that is not offered, and arguments that do not fit are answers to the model."""
    wrong = [
        call("shop_fly"),
        call("shop_pay", order="7"),
        call("shop_look"),
        lash.agents.ToolCall(id="c", name="shop_look", arguments="["),
    ]
    model = ScriptedModel(wrong, "done")
    agent = Agent("assistant", model, tools=[mcp_tools("shop", shop(tmp_path), only=["look", "refuse"])])
    assert await agent.run("go") == "done"
    assert [spec.name for spec in model.requests[0].tools] == ["shop_look", "shop_refuse"]
    answers = [text for _, text, failed in results(model) if failed]
    assert answers[:2] == [
        "unknown tool 'shop_fly'; there are: shop_look, shop_refuse",
        "unknown tool 'shop_pay'; there are: shop_look, shop_refuse",
    ]
    assert "Field required" in answers[2]
    assert answers[3].startswith("the arguments are not JSON")
    assert calls(tmp_path) == []


async def test_options_of_single_tools(tmp_path: Path) -> None:
    """A tool that needs an approval is called only after it."""
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> Approval:
        asked.append(request.call.name)
        return Approval(approved=request.call.arguments == '{"order":"7"}', text="by ada")

    model = ScriptedModel(
        [call("shop_look", order="7"), call("shop_pay", order="7"), call("shop_pay", order="8")], "done"
    )
    tools = mcp_tools("shop", shop(tmp_path), tools={"pay": ToolOptions(needs_approval=True, once=True)})
    assert await Agent("assistant", model, tools=[tools]).run("pay", approve=approve) == "done"
    assert asked == ["shop_pay", "shop_pay"]
    assert calls(tmp_path).count("pay") == 1
    assert [failed for _, _, failed in results(model)] == [False, False, True]


async def test_a_changed_list_of_tools_is_seen(tmp_path: Path) -> None:
    """The next request to the model has a tool that was added and not one that was removed."""
    server = shop(tmp_path)

    @server.tool()
    async def upgrade() -> str:
        server.remove_tool("upgrade")
        server.add_tool(lambda: "new", name="fresh/one", description="Added later.")
        return "upgraded"

    model = ScriptedModel(call("shop_upgrade"), [call("shop_fresh_one"), call("shop_upgrade")], "done")
    assert await Agent("assistant", model, tools=[mcp_tools("shop", server)]).run("go") == "done"
    first, second, _ = ([spec.name for spec in request.tools] for request in model.requests)
    assert ("shop_upgrade" in first, "shop_fresh_one" in first) == (True, False)
    assert ("shop_upgrade" in second, "shop_fresh_one" in second) == (False, True)
    _, new, gone = results(model)
    assert new == ("shop_fresh_one", "new", False)
    assert gone[1:] == ("unknown tool 'shop_upgrade'; there are: " + ", ".join(second), True)


async def test_results_are_text_and_bounded() -> None:
    """Texts are joined, pictures are named, structured content stands in for text, and a long result is cut."""
    server = MCPServer("many", log_level="ERROR")

    @server.tool()
    async def picture() -> CallToolResult:
        image = ImageContent(type="image", data="AAAA", mime_type="image/png")
        return CallToolResult(content=[TextContent(type="text", text="a cat"), image])

    @server.tool()
    async def numbers() -> CallToolResult:
        return CallToolResult(content=[], structured_content={"total": 3})

    @server.tool()
    async def long() -> str:
        return "x" * 60

    model = ScriptedModel([call("m_picture"), call("m_numbers"), call("m_long")], "done")
    assert await Agent("assistant", model, tools=[mcp_tools("m", server, most_characters=50)]).run("go") == "done"
    assert [text for _, text, _ in results(model)] == [
        "a cat\n[image of type image/png, not shown]",
        '{"total":3}',
        "x" * 50 + "\n… 10 more characters",
    ]


@pytest.mark.parametrize(
    "tools",
    [
        lambda: [mcp_tools("a", "http://localhost/"), mcp_tools("a_b", "http://localhost/")],
        lambda: [mcp_tools("a", "http://localhost/"), tool(name="a_look")(lambda: "x")],
        lambda: [mcp_tools("not a name", "http://localhost/")],
        lambda: [mcp_tools("a", StdioServerParameters(command="x"), headers={"a": "b"})],
    ],
)
def test_what_cannot_work_is_refused_at_once(tools: Callable[[], list[lash.agents.Tool]]) -> None:
    """Where a call goes must be clear from its name alone."""
    with pytest.raises(ConfigError):
        Agent("assistant", ScriptedModel(), tools=tools())


async def test_a_server_that_is_away_when_its_tools_are_listed(tmp_path: Path) -> None:
    """The model call is tried again until the server is there; one that stays away fails the turn with a reason."""
    missing = mcp_tools("shop", StdioServerParameters(command=str(tmp_path / "missing")))
    agent = Agent("assistant", ScriptedModel("never"), tools=[missing], model_retry=QUICK)
    with pytest.raises(TurnFailed, match="ToolsUnavailable: the MCP server 'shop' cannot be reached"):
        await agent.run("go")
    script = tmp_path / "later"
    later = mcp_tools("shop", StdioServerParameters(command=str(script), env=environment()), options=FAST)
    starts: list[int] = []

    class Patient(lash.Retry, frozen=True):
        def pause_s(self, attempt: int) -> float:
            starts.append(attempt)
            if attempt == 2:
                script.write_text(f"#!/bin/sh\nexec {sys.executable} -m tests.agents.mcp_shop {tmp_path}\n")
                script.chmod(0o700)
            return 0.01

    model = ScriptedModel(call("shop_look", order="7"), "done")
    agent = Agent("assistant", model, tools=[later], model_retry=Patient(max_attempts=5))
    assert await agent.run("go") == "done"
    assert results(model) == [("shop_look", "7 is late", False)]
    # A turn that was parked in between asks for the pause of its first attempt again.
    assert set(starts) == {1, 2}


async def test_a_server_that_dies_during_a_call(tmp_path: Path) -> None:
    """The call is made again on a new connection; with `once` it is not, and the model learns that."""
    model = ScriptedModel(call("shop_crash", order="7"), "done")
    agent = Agent("assistant", model, tools=[mcp_tools("shop", program(tmp_path), options=FAST)])
    assert await agent.run("go") == "done"
    assert results(model) == [("shop_crash", "7 survived", False)]
    assert (calls(tmp_path), len(pids(tmp_path))) == (["crash", "crash"], 2)
    (tmp_path / "calls").unlink()
    model = ScriptedModel(call("shop_crash", order="8"), "done")
    once = mcp_tools("shop", program(tmp_path), tools={"crash": ToolOptions(once=True, retry=QUICK)})
    assert await Agent("assistant", model, tools=[once]).run("go") == "done"
    ((_, text, failed),) = results(model)
    assert failed
    assert text.startswith("It is unknown whether the call was made")
    assert calls(tmp_path) == ["crash"]
    assert not [pid for pid in pids(tmp_path) if is_alive(pid)]


async def test_a_cancelled_turn_leaves_the_connection_to_others(tmp_path: Path) -> None:
    """A turn that is cancelled in a call does not end the server; stopping the app does."""
    (tmp_path / "hold").touch()
    model = ScriptedModel(call("shop_pay", order="7"), call("shop_look", order="8"), "done")
    app = lash.App("sqlite://")
    agent = Agent("assistant", model, tools=[mcp_tools("shop", program(tmp_path))]).declare(app)
    async with app:
        handle = app.session("chat", agent=agent)
        await handle.send("pay")
        await until(lambda: calls(tmp_path) == ["pay"])
        assert await handle.cancel()
        assert await handle.ask("look") == "done"
        (pid,) = pids(tmp_path)
        assert is_alive(pid)
    assert calls(tmp_path) == ["pay", "look"]
    assert not is_alive(pid)


async def test_over_http_with_headers(tmp_path: Path) -> None:
    """A server with a URL gets the headers of the application, and a server that was restarted is used again."""
    seen: list[bytes | None] = []
    inner = shop(tmp_path).streamable_http_app()

    async def app(scope: object, receive: object, send: object) -> None:
        assert isinstance(scope, dict)
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"x-tenant"))
        await inner(scope, receive, send)  # type: ignore[arg-type]

    async with serving(app) as url:
        model = ScriptedModel(call("shop_look", order="7"), "done")
        tools = mcp_tools("shop", f"{url}mcp", headers={"x-tenant": "t1"}, options=FAST)
        assert await Agent("assistant", model, tools=[tools]).run("go") == "done"
    assert results(model) == [("shop_look", "7 is late", False)]
    assert set(seen) == {b"t1"}
    model = ScriptedModel("never")
    with pytest.raises(TurnFailed, match=ToolsUnavailable.__name__):
        await Agent("assistant", model, tools=[tools], model_retry=QUICK).run("go")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
