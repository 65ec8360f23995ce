"""An MCP server of the official SDK, as a subprocess: ``python -m tests.agents.mcp_shop DIRECTORY``.

Each real call adds a line to the file ``calls``, and the server writes its process id to ``pids``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError


def shop(directory: Path) -> MCPServer:
    """Return a server whose calls are counted in a directory."""
    server = MCPServer("shop", log_level="ERROR")

    def count(name: str) -> None:
        with (directory / "calls").open("a") as file:
            file.write(f"{name}\n")

    @server.tool()
    async def look(order: str) -> str:
        """Return what happened to an order."""
        count("look")
        return f"{order} is late"

    @server.tool()
    async def refuse(order: str) -> str:
        """Fail."""
        count("refuse")
        raise ToolError(f"{order} is not yours")

    @server.tool()
    async def pay(order: str) -> str:
        """Pay, and take as long as the file ``hold`` exists."""
        count("pay")
        while (directory / "hold").exists():  # noqa: ASYNC110 (another process removes it)
            await anyio.sleep(0.01)
        return f"{order} is paid"

    @server.tool()
    async def crash(order: str) -> str:
        """End the server in its first call."""
        count("crash")
        if calls(directory).count("crash") == 1:
            os._exit(3)
        return f"{order} survived"

    return server


def calls(directory: Path) -> list[str]:
    """Return the names of the tools that were called, in order."""
    path = directory / "calls"
    return path.read_text().splitlines() if path.exists() else []


def pids(directory: Path) -> list[int]:
    """Return the process ids of all servers that were started."""
    path = directory / "pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with (place / "pids").open("a") as started:
        started.write(f"{os.getpid()}\n")
    shop(place).run()
