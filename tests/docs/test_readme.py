"""The code that the README shows works when it is pasted."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import lash
from tests.docs.pages import DOCS, README, blocks_of


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "example.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


async def test_the_example_runs_and_can_be_run_again(tmp_path: Path) -> None:
    """The agent answers; a second run sends the same message and gets the same answer."""
    blocks = blocks_of(README.read_text(encoding="utf-8"))
    example, _ = (block.body for block in blocks if block.language == "python")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    for _ in range(2):
        done = await asyncio.to_thread(_run, tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "You said: hello\n", "")
    async with await lash.open(f"sqlite:///{tmp_path / 'agents.db'}") as storage:
        read = await storage.session("chat-1").load()
        assert read is not None
        assert [node.node_id.rpartition(":")[2] for node in read.graph.nodes] == ["0", "reply"]


def test_its_links_lead_somewhere() -> None:
    """Links to renamed or removed files are found; the site build does not check this page."""
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert len(links) > 20
    assert [link for link in links if "://" not in link and not (README.parent / link).exists()] == []


def test_its_promises_are_among_the_guarantees() -> None:
    """Each row of the table names tests, and the page of guarantees names tests of the same files."""
    text = README.read_text(encoding="utf-8").partition("## What it promises")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 5
    proofs = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    for row in rows:
        files = re.findall(r"\[`(\w+)`\]\((tests/\S+\.py)\)", row)
        assert files, row
        for name, path in files:
            assert path.endswith(f"/{name}.py")
            assert f"`{path}::" in proofs
