"""The Model Context Protocol: a server with which an operator's model inspects and steers a storage.

It needs the extra ``mcp``. Tools of MCP servers for agents are in `lash.agents.mcp`.
"""

from __future__ import annotations

from lash.errors import ConfigError

try:
    from lash.protocols.mcp.http import OperatorApp, bearer_token
    from lash.protocols.mcp.server import Operator, operator_server
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "starlette"):
        raise
    raise ConfigError("the MCP server needs mcp; install it with: pip install 'lash-runtime[mcp]'") from error

__all__ = ["Operator", "OperatorApp", "bearer_token", "operator_server"]
