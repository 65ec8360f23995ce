"""The code that the README shows works when it is pasted."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import lash

README: Final = Path(__file__).parents[2] / "README.md"


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "example.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def _blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


async def test_the_example_runs_and_can_be_run_again(tmp_path: Path) -> None:
    """The agent answers; a second run sends the same message again, which is one message, and gets the same answer."""
    (example,) = _blocks()
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    for _ in range(2):
        done = await asyncio.to_thread(_run, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")
    async with await lash.open(f"sqlite:///{tmp_path / 'agents.db'}") as storage:
        read = await storage.session("chat-1").load()
        assert read is not None
        assert [node.node_id.rpartition(":")[2] for node in read.graph.nodes] == ["0", "reply"]


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_commands_are_those_of_the_makefile(command: str) -> None:
    """The two commands that the README names exist."""
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    assert command in README.read_text(encoding="utf-8")
    assert re.search(rf"^{command.removeprefix('make ')}:", makefile, re.MULTILINE)
