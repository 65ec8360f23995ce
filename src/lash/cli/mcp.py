"""``lash mcp``: the storage as tools for an operator's model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lash.cli.command import command
from lash.cli.operator import os_user
from lash.cli.shell import Shell

if TYPE_CHECKING:
    from lash.protocols.mcp import Operator
    from lash.stores.storage import Storage


@command(
    "mcp",
    "lash mcp",
    "lash mcp --allow act --as ada-assistant",
    "lash mcp --http 127.0.0.1:8138 --token $TOKEN",
)
@click.option(
    "--allow",
    type=click.Choice(("read", "act")),
    default="read",
    show_default=True,
    help="What the model may do: only read, or also requeue, approve, reject and cancel.",
)
@click.option("--as", "by", metavar="NAME", help="Who does it, for `lash acts`.  [default: mcp: and the OS user]")
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP there instead of standard input and output.")
@click.option("--token", envvar="LASH_MCP_TOKEN", help="What clients over HTTP send.  [default: $LASH_MCP_TOKEN]")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name under which clients reach it.")
async def mcp(
    shell: Shell, allow: str, by: str | None, http: str | None, token: str | None, hosts: tuple[str, ...]
) -> None:
    """Serve the storage to a model over the Model Context Protocol: list, show and, if allowed, act.

    An assistant starts it as a subprocess and talks to it over standard input and output. With --http it serves
    clients that send the token as a bearer token.
    """
    if http is not None and not token:
        raise click.UsageError("--http needs a token: set --token or LASH_MCP_TOKEN")
    async with shell.storage() as storage:
        from lash.protocols.mcp import Operator

        operator = Operator(by or f"mcp:{os_user()}", may_act=allow == "act")
        if http is None:
            await _serve_stdio(shell, storage, operator)
        else:
            await _serve_http(shell, storage, operator, http, str(token), hosts)


async def _serve_stdio(shell: Shell, storage: Storage, operator: Operator) -> None:
    import asyncio
    import contextlib
    import signal

    from mcp.server.stdio import stdio_server

    from lash.cli.stdin_lines import StandardInput
    from lash.protocols.mcp import operator_server

    server = operator_server(storage, operator, redact=shell.scrubbed)

    async def serve() -> None:
        # The transport only iterates over its input.
        lines: Any = StandardInput()
        async with stdio_server(stdin=lines) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    serving = asyncio.create_task(serve(), name="lash-mcp")
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _serve_http(
    shell: Shell, storage: Storage, operator: Operator, http: str, token: str, hosts: tuple[str, ...]
) -> None:
    import asyncio
    import signal

    from lash.cli.serving import Server, listening
    from lash.protocols.mcp import OperatorApp, bearer_token
    from lash.telemetry.health import parse_address

    host, port = parse_address(http)
    app = OperatorApp(storage, bearer_token(token, operator), hosts=(*hosts, host), redact=shell.scrubbed)
    server = Server(app, extra="mcp", lifespan=True)
    with listening(host, port) as listener:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}/"
        shell.done(f"the MCP server listens on {address}", {"address": address})
        await server.run(listener)
