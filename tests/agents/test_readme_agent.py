"""The agent in the README: at most 25 lines, run against a server, with an approval from another process."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import lash
from lash.agents import pending_approvals
from tests.agents.stand_in import readme_script, stand_in
from tests.docs.pages import README, blocks_of

_PATIENCE_S: Final = 120


def program() -> str:
    _, agent = (block.body for block in blocks_of(README.read_text(encoding="utf-8")) if block.language == "python")
    return agent


def test_it_has_at_most_25_lines() -> None:
    """Model, two tools, streaming and an approval; blank lines are not counted."""
    assert len([line for line in program().splitlines() if line.strip()]) <= 25


async def test_it_runs_with_an_approval_from_another_process(tmp_path: Path) -> None:
    """The text is streamed, the turn waits for ``lash waits resolve``, and the refund is made once, after it."""
    (tmp_path / "shop.py").write_text(program(), encoding="utf-8")
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with stand_in(readme_script) as server, asyncio.timeout(_PATIENCE_S):
        settings = {**os.environ, "OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none", "LASH_URL": url}
        command = [sys.executable, "shop.py"]
        shop = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=settings, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            wait_id = await _waiting(url)
            assert len(server.requests) == 2
            approve = [sys.executable, "-m", "lash", "waits", "resolve", wait_id, "true"]
            approved = await asyncio.create_subprocess_exec(*approve, env=settings, stdout=asyncio.subprocess.PIPE)
            await approved.communicate()
            assert approved.returncode == 0
            said, errors = await shop.communicate()
        finally:
            if shop.returncode is None:
                shop.kill()
                await shop.wait()
    assert shop.returncode == 0, errors.decode()
    assert said.decode() == "Let me look. It was lost; 500 cents were refunded."
    assert server.problems == []
    assert len(server.requests) == 3


async def _waiting(url: str) -> str:
    """Return the id of the wait for the approval once the turn is parked."""
    while True:
        async with await lash.open(url) as storage:
            for pending in await pending_approvals(storage):
                assert (pending.session_id, pending.call.name) == ("chat-1", "refund")
                return pending.wait_id
        await asyncio.sleep(0.1)
