"""One file holds all sessions, whatever their ids."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import lash
from tests.factories.session import commit, node


def _files_below(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


async def test_session_ids_name_no_files(tmp_path: Path) -> None:
    """All sessions share one file, so an id that looks like a path touches no other file."""
    directory = tmp_path / "deep" / "storage"
    directory.mkdir(parents=True)
    async with await lash.open(f"sqlite:///{directory / 'lash.db'}") as storage:
        for session_id in ("../../escape", "/etc/passwd", "a/b", "..", "x" * 255):
            revision = (await storage.sessions.create(session_id)).revision
            await storage.session(session_id).commit(commit(revision, node("a"), session_id=session_id))
        assert await storage.sessions.delete("../../escape")
    files = _files_below(tmp_path)
    assert {name for name in files if not name.startswith("deep/storage/lash.db")} == set()
    assert "deep/storage/lash.db" in files


async def test_a_failure_after_the_commit_is_not_a_failed_commit(tmp_path: Path) -> None:
    """An error after a commit is durable does not make the commit fail."""
    heard: list[str] = []

    def fail_after_commit(name: str) -> None:
        heard.append(name)
        if name == "checkpoint":
            raise RuntimeError("the log cannot be copied")

    url = f"sqlite:///{tmp_path / 'lash.db'}?checkpoint_pages=1"
    async with await lash.open(url, on_statement=fail_after_commit) as storage:
        revision = (await storage.sessions.create("s")).revision
        result = await storage.session("s").commit(commit(revision, node("a")))
        again = await storage.session("s").commit(commit(result.revision, node("b", "a")))
    assert again.revision == revision + 2
    assert "checkpoint" in heard


async def test_text_that_is_not_utf8_is_damage(tmp_path: Path) -> None:
    """Bytes that another program stored in a text column raise CorruptData, not InvalidInput."""
    url = f"sqlite:///{tmp_path / 'lash.db'}"
    async with await lash.open(url) as storage:
        await storage.sessions.create("s")
    connection = apsw.Connection(str(tmp_path / "lash.db"))
    connection.execute("UPDATE lash_sessions SET name = CAST(x'ff' AS TEXT)")
    connection.close()
    async with await lash.open(url) as storage:
        with pytest.raises(lash.CorruptData, match="expected UTF-8 in a stored text"):
            await storage.sessions.list()
