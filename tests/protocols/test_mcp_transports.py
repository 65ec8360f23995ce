"""The MCP server for operators as a program and over HTTP, with the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Literal

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import lash
from lash.errors import ConfigError
from lash.protocols.mcp import Operator, OperatorApp, bearer_token
from lash.stores.storage import Storage
from tests.cli.kit import environment
from tests.protocols.mcp_kit import ADA, Desk, serving
from tests.web.site import fill

TOKEN = "a-token-of-this-test"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite"])


def program(url: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "lash", "mcp", "--url", url, *options]


async def test_an_assistant_starts_the_command(backend_url: str) -> None:
    """`lash mcp` talks over its pipes, acts in the given name if it may, and reads only by default."""
    async with await lash.open(backend_url) as storage:
        await fill(storage, 1)
        (letter,) = await storage.queue.dead()
    command, *arguments = program(backend_url, "--allow", "act", "--as", "ada-assistant")
    async with Client(StdioServerParameters(command=command, args=arguments, env=environment())) as client:
        model = Desk(client)
        await model.call("requeue", session_id="dead0", batch_id=letter.batch.batch_id)
        assert [each["by"] for each in (await model.call("list_acts"))["items"]] == ["ada-assistant"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.proof)])
async def test_a_signal_ends_the_command_while_it_reads(backend_url: str, number: int) -> None:
    """Ctrl-C does not wait for the next line of the client."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*program(backend_url), stdin=pipe, stdout=pipe, env=environment())
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(json.dumps(HELLO).encode() + b"\n")
    answer = json.loads(await running.stdout.readline())
    assert answer["result"]["serverInfo"]["name"] == "lash"
    os.kill(running.pid, number)
    async with asyncio.timeout(30):
        assert await running.wait() == 0
    running.stdin.close()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_over_http_each_request_has_its_operator(storage: Storage, mode: Literal["auto", "legacy"]) -> None:
    """Two operators share a server: one acts under their own name, the other only reads."""
    await fill(storage, 1)
    operators = {"ada": ADA, "bob": Operator("bob")}

    def access(request: Request) -> Operator | None:
        return operators.get(request.headers.get("x-operator", ""))

    async with serving(OperatorApp(storage, access)) as url:
        for name, may_act in (("ada", True), ("bob", False), ("ada", True)):
            async with (
                httpx2.AsyncClient(headers={"x-operator": name}) as http,
                Client(streamable_http_client(url, http_client=http), mode=mode) as client,
            ):
                model = Desk(client)
                assert ("cancel_process" in await model.tools()) is may_act
                if may_act:
                    await model.call("cancel_process", process_id="p0")
                else:
                    assert "only reads" in await model.refused("cancel_process", process_id="p0")
    assert [act.by for act in await storage.acts.list()] == ["ada", "ada"]


async def test_http_refuses_strangers(storage: Storage) -> None:
    """A request without the token, for another host, from a web page or with a large body gets no answer."""
    headers = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}
    app = OperatorApp(storage, bearer_token(TOKEN, ADA), hosts=["lash.internal"])
    async with serving(app) as url, httpx.AsyncClient(headers=headers) as client:
        assert (await client.post(url, json=HELLO)).status_code == 200
        assert (await client.post(url, json=HELLO, headers={"host": "lash.internal"})).status_code == 200
        for wrong, status in (
            ({"authorization": ""}, 401),
            ({"authorization": f"Bearer {TOKEN}x"}, 401),
            ({"authorization": f"Basic {TOKEN}"}, 401),
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
        ):
            assert (await client.post(url, json=HELLO, headers=wrong)).status_code == status
        large = {**HELLO, "padding": "x" * 1_000_000}
        assert (await client.post(url, json=large)).status_code == 413
    with pytest.raises(ConfigError, match="at least 16 characters"):
        bearer_token("short", ADA)


async def test_it_can_be_mounted_in_another_application(storage: Storage) -> None:
    """The application that it is mounted in starts it; without that, a request says so."""
    app = OperatorApp(storage, bearer_token(TOKEN, ADA))
    outer = Starlette(routes=[Mount("/ops", app)], lifespan=lambda _: app.running())
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        serving(outer) as url,
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{url}ops/", http_client=http)) as client,
    ):
        assert (await Desk(client).call("overview"))["counts"]["dead"] == 0
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as stranger:
        with pytest.raises(ConfigError, match="is not started"):
            await stranger.post("/", json=HELLO)


@pytest.mark.proof
async def test_the_command_serves_http(backend_url: str, tmp_path: Path) -> None:
    """`lash mcp --http` prints its address, needs a token, and stops on a signal."""
    without = await asyncio.create_subprocess_exec(
        *program(backend_url, "--http", "127.0.0.1:0"), stderr=asyncio.subprocess.PIPE, env=environment()
    )
    _, error = await without.communicate()
    assert (without.returncode, b"needs a token" in error) == (2, True)
    options = ("--http", "127.0.0.1:0", "--json")
    running = await asyncio.create_subprocess_exec(
        *program(backend_url, *options),
        stdout=asyncio.subprocess.PIPE,
        env=environment({"LASH_MCP_TOKEN": TOKEN}),
        cwd=tmp_path,
    )
    assert running.stdout is not None
    try:
        address = json.loads(await running.stdout.readline())["address"]
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            assert "requeue" not in await Desk(client).tools()
    finally:
        running.terminate()
        async with asyncio.timeout(30):
            assert await running.wait() == 0
