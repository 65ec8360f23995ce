"""An application whose agent has the tools of an MCP server, for ``lash worker tests.agents.mcp_app:app``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp import StdioServerParameters

import lash
from lash.agents import Agent, ModelReply, ModelRequest, ToolCall
from lash.agents.mcp import MCPTools, ToolOptions, mcp_tools


def _tools() -> MCPTools:
    """Return the tools of the shop: a URL, or a directory for which one is started."""
    options = {"pay": ToolOptions(once=bool(os.environ.get("PAY_ONCE")), retry=lash.Retry(max_attempts=1))}
    shop = os.environ["SHOP"]
    if shop.startswith("http"):
        return mcp_tools("shop", shop, tools=options)
    arguments = ["-m", "tests.agents.mcp_shop", shop]
    environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment, cwd=Path.cwd())
    return mcp_tools("shop", server, tools=options)


async def _model(request: ModelRequest) -> ModelReply:
    """Look, then pay, then reply with what the tools said."""
    said = [
        part.content for message in request.messages for part in message.parts if part.kind is lash.PartKind.TOOL_RESULT
    ]
    calls = [ToolCall(id=name, name=f"shop_{name}", arguments='{"order":"7"}') for name in ("look", "pay")]
    return ModelReply.of(*calls[len(said) : len(said) + 1], *([] if len(said) < len(calls) else ["; ".join(said)]))


app = lash.App(os.environ["LASH_URL"], options=lash.WorkerOptions(poll_s=0.1, grace_s=0.5))
Agent("assistant", _model, tools=[_tools()], retry=lash.Retry(max_attempts=2, first_pause_s=0.01)).declare(app)
