"""Workers whose agents call tools of MCP servers: killed in the middle of a call, and stopped with Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import lash
from lash.model.session.node import MessageEntry
from lash.model.session.session import ActivePath
from lash.stores.storage import Storage
from tests.agents.mcp_shop import calls, pids, shop
from tests.agents.test_mcp_tools import is_alive
from tests.cli.kit import ROOT, environment
from tests.protocols.mcp_kit import serving
from tests.runtime.worker_kit import until

pytestmark = [pytest.mark.parametrize("backend_name", ["sqlite"]), pytest.mark.proof]

SESSION = "chat"


@asynccontextmanager
async def worker(url: str, where: str, *, once: bool) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``lash worker``; it is killed at the end unless it has ended."""
    settings = {"LASH_URL": url, "SHOP": where, "PAY_ONCE": "1" if once else ""}
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lash", "worker", "tests.agents.mcp_app:app"), cwd=ROOT, env=environment(settings)
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def send(url: str) -> None:
    async with lash.App(url, worker=False) as app:
        await app.session(SESSION).send("pay for 7", key="first")


async def said(storage: Storage) -> str:
    """Return the last message of the conversation."""
    read = await storage.session(SESSION).load(ActivePath(last=1))
    assert read is not None
    entry = read.graph.nodes[-1].entry
    assert isinstance(entry, MessageEntry)
    return entry.message.text


@pytest.mark.parametrize("once", [False, True])
async def test_a_worker_is_killed_in_the_middle_of_a_call(backend_url: str, tmp_path: Path, *, once: bool) -> None:
    """A recorded call is not made again; the interrupted one is, and not if it must be made once."""
    (tmp_path / "hold").touch()
    await send(backend_url)
    async with serving(shop(tmp_path).streamable_http_app()) as address:
        async with worker(backend_url, f"{address}mcp", once=once) as killed:
            await until(lambda: calls(tmp_path) == ["look", "pay"])
            killed.kill()
        (tmp_path / "hold").unlink()
        async with worker(backend_url, f"{address}mcp", once=once), await lash.open(backend_url) as storage:

            async def is_over() -> bool:
                return not await storage.queue.list(SESSION)

            await until(is_over)
            letters = await storage.queue.dead()
            if once:
                assert calls(tmp_path) == ["look", "pay"]
                assert ["OutcomeUnknown" in letter.reason for letter in letters] == [True]
            else:
                assert letters == ()
                assert calls(tmp_path) == ["look", "pay", "pay"]
                assert await said(storage) == "7 is late; 7 is paid"


async def test_ctrl_c_ends_the_servers_of_a_worker(backend_url: str, tmp_path: Path) -> None:
    """A worker that is stopped in the middle of a call leaves no subprocess."""
    (tmp_path / "hold").touch()
    await send(backend_url)
    async with worker(backend_url, str(tmp_path), once=False) as stopped:
        await until(lambda: calls(tmp_path) == ["look", "pay"])
        (pid,) = pids(tmp_path)
        os.kill(stopped.pid, signal.SIGINT)
        assert await stopped.wait() == 0
        assert not is_alive(pid)
