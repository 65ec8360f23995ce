"""The examples in docs/export-format.md are what lash writes and reads."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Final

import pytest

from lash.model.session.session import ActivePath
from lash.transfer import Progress, import_session
from tests.transfer.kit import comparable, exported, opened, rich_session

DOCUMENT: Final = (Path(__file__).parents[2] / "docs" / "export-format.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the only block of a language."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    return str(text)


async def test_the_example_is_a_session(backend_url: str) -> None:
    """The file in the document can be imported, and its export has the same lines."""
    file = block("json").encode()
    async with opened(backend_url) as (storage,):
        imported = await import_session(storage, io.BytesIO(file))
        assert (imported.session_id, imported.counts.nodes, imported.batches_added) == ("greeting", 3, 1)
        read = await storage.session("greeting").load(ActivePath(leaf_node_id="n3"))
        assert read is not None
        assert [node.node_id for node in read.graph.nodes] == ["n1", "n3"]
        assert read.head.leaf_node_id == "n2"
        assert read.checkpoint.components == {"tool_state": b'{"open":[]}'}
        again = await exported(storage, "greeting", with_queue=True)
        assert again.splitlines()[1:-1] == file.splitlines()[1:-1]
        assert comparable(again) == comparable(file)


async def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program in the document moves a session and copies a storage."""
    monkeypatch.chdir(tmp_path)
    printed: list[tuple[object, ...]] = []
    names: dict[str, object] = {"print": lambda *values: printed.append(values)}
    exec(compile(block("python"), "export-format.md", "exec"), names)
    async with opened("sqlite:///agents.db") as (storage,):
        await rich_session(storage)
    move = names["move"]
    assert callable(move)
    await asyncio.wait_for(move("s"), 30)
    assert printed[0] == ("s", 1, True)
    assert (Progress(noun="session", done=1, total=1),) in printed
    assert printed[-1] == ({}, {"session": 1, "attachment": 4, "batch": 3}, (), {})
