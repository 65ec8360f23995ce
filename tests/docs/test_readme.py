"""The code that the README shows works when it is pasted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import lash
from tests.docs.pages import README, blocks_of


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "example.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


async def test_the_example_runs_and_can_be_run_again(tmp_path: Path) -> None:
    """The agent answers; a second run sends the same message again, which is one message, and gets the same answer."""
    blocks = blocks_of(README.read_text(encoding="utf-8"))
    (example,) = (block.body for block in blocks if block.language == "python")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    for _ in range(2):
        done = await asyncio.to_thread(_run, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")
    async with await lash.open(f"sqlite:///{tmp_path / 'agents.db'}") as storage:
        read = await storage.session("chat-1").load()
        assert read is not None
        assert [node.node_id.rpartition(":")[2] for node in read.graph.nodes] == ["0", "reply"]
