"""The official MCP client against the server for operators, and a server for ASGI applications."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.types import TextContent
from starlette.types import ASGIApp

from lash.cli.serving import Server, listening
from lash.protocols.mcp import Operator, operator_server
from lash.protocols.mcp.untrusted import NOTICE
from lash.stores.storage import Storage

ADA = Operator("ada", may_act=True)


class Desk:
    """A client, and what its calls returned."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: list[str] = []
        """The text of every answer."""

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 (those of the tool)
        """Return the answer of a tool; fail on an error."""
        text, is_error = await self._call(name, arguments)
        assert not is_error, text
        notice, _, answer = text.partition("\n")
        assert notice == NOTICE
        found: dict[str, Any] = json.loads(answer)
        return found

    async def refused(self, name: str, **arguments: Any) -> str:  # noqa: ANN401 (those of the tool)
        """Return the error of a tool."""
        text, is_error = await self._call(name, arguments)
        assert is_error, text
        return text

    async def _call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        result = await self.client.call_tool(name, arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        self.said.append(content.text)
        return content.text, result.is_error


@asynccontextmanager
async def desk(storage: Storage, operator: Operator = ADA) -> AsyncIterator[Desk]:
    """Connect a client to a server in this process."""
    async with Client(operator_server(storage, operator)) as client:
        yield Desk(client)


@asynccontextmanager
async def serving(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve an application on a port of the loopback interface, by default a free one, and yield its address."""
    server = Server(app, extra="mcp", lifespan=True)
    with listening("127.0.0.1", port) as listener:
        running = asyncio.create_task(server.run(listener))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.stop()
            await running
