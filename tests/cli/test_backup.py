"""Backups of a SQLite storage, and restored storages."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

import lash
from tests.backends import with_parameters
from tests.cli.kit import PATIENCE_S, command, environment, run, terminal, values
from tests.cli.seed import Seeded, seed
from tests.factories.session import commit, node


@pytest.fixture
def here(tmp_path: Path) -> Seeded:
    """A SQLite storage with one of everything."""
    return seed(f"sqlite:///{tmp_path / 'agents.db'}")


def contents(url: str) -> list[object]:
    """Return what lists and logs show of a storage."""
    lists = (("sessions", "ls"), ("sessions", "tree", "support-42"), ("ps", "-a"), ("logs", "research-7"))
    return [values(*arguments, url=url) for arguments in (*lists, ("queue", "dead"), ("triggers", "ls"))]


def test_a_backup_can_be_restored_elsewhere(here: Seeded, tmp_path: Path) -> None:
    """A restored storage has everything that was backed up, and only the named files are left."""
    copy, restored = tmp_path / "copy.db", f"sqlite:///{tmp_path / 'restored.db'}"
    (made,) = values("db", "backup", str(copy), url=here.url)
    assert made["bytes"] == copy.stat().st_size
    assert run("db", "restore", str(copy), "--yes", url=restored).returncode == 0
    assert contents(restored) == contents(here.url)
    assert run("db", "check", url=restored).returncode == 0
    names = {file.name for file in tmp_path.iterdir() if not file.name.endswith((".lock", ".turn", "-wal", "-shm"))}
    assert names == {"agents.db", "copy.db", "restored.db"}


def test_cursors_get_a_gap_after_a_restore(here: Seeded, tmp_path: Path) -> None:
    """Readers that have seen more than the backup holds, or as much, get a gap in the restored storage."""
    copy = tmp_path / "copy.db"
    assert run("db", "backup", str(copy), url=here.url).returncode == 0
    cursor = asyncio.run(_end_of_feed(here.url))
    assert asyncio.run(_gap_at(here.url, cursor)) is None
    assert run("db", "restore", str(copy), "--yes", url=here.url).returncode == 0
    assert asyncio.run(_gap_at(here.url, cursor)) is lash.GapReason.UNAVAILABLE


async def _end_of_feed(url: str) -> str:
    async with await lash.open(url) as storage:
        return (await storage.events.changes(limit=1_000)).cursor


async def _gap_at(url: str, cursor: str) -> lash.GapReason | None:
    async with await lash.open(url) as storage:
        return (await storage.events.changes(cursor)).gap


def test_a_backup_is_one_moment_while_others_write(here: Seeded, tmp_path: Path) -> None:
    """A backup during commits is consistent: every session in it has exactly its commits so far."""
    stop = tmp_path / "stop"
    program = (
        "import asyncio, pathlib, sys, lash\n"
        "from tests.factories.session import commit, node\n"
        "async def main():\n"
        "    async with await lash.open(sys.argv[1]) as storage:\n"
        "        await storage.sessions.create('w')\n"
        "        revision = 0\n"
        "        while not pathlib.Path(sys.argv[2]).exists():\n"
        "            made = commit(revision, node(f'n{revision}', None, 'x' * 20_000), session_id='w')\n"
        "            revision = (await storage.session('w').commit(made)).revision\n"
        "asyncio.run(main())\n"
    )
    writer = subprocess.Popen(
        [command()[0], "-c", program, here.url, str(stop)], env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        for number in range(3):
            assert run("db", "backup", str(tmp_path / f"copy{number}.db"), url=here.url).returncode == 0
    finally:
        stop.touch()
        _out, err = writer.communicate(timeout=PATIENCE_S)
    assert (writer.returncode, err) == (0, "")
    for number in range(3):
        asyncio.run(_is_whole(f"sqlite:///{tmp_path / f'copy{number}.db'}"))


async def _is_whole(url: str) -> None:
    async with await lash.open(url, migrate=False) as storage:
        if await storage.sessions.open("w") is None:
            return
        read = await storage.session("w").load(lash.model.FullGraph())
        if read is not None:
            assert len(read.graph.nodes) == read.head.revision == read.head.node_count


def test_nothing_is_overwritten(here: Seeded, tmp_path: Path) -> None:
    """A taken name is a conflict, and the existing file is not changed."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    ended = run("db", "backup", str(taken), url=here.url)
    assert (ended.returncode, taken.read_text()) == (4, "mine")


def test_restoring_keeps_what_was_there(here: Seeded, tmp_path: Path) -> None:
    """The storage has the content of the backup, and the replaced file is kept beside it."""
    copy = tmp_path / "copy.db"
    assert run("db", "backup", str(copy), url=here.url).returncode == 0
    assert run("sessions", "rm", "support-42", "--yes", url=here.url).returncode == 0
    assert run("db", "restore", str(copy), url=here.url).returncode == 2
    (dry,) = values("db", "restore", str(copy), "--dry-run", url=here.url)
    assert values("sessions", "ls", url=here.url) == []
    (done,) = values("db", "restore", str(copy), "--yes", url=here.url)
    assert Path(dry["kept"]).name.startswith("agents.db.replaced-")
    assert [each["meta"]["session_id"] for each in values("sessions", "ls", url=here.url)] == ["support-42"]
    assert values("sessions", "ls", url=f"sqlite:///{done['kept']}") == []


def test_a_storage_in_use_is_not_replaced(here: Seeded, tmp_path: Path) -> None:
    """While another process has the storage open, restoring is a conflict and changes nothing."""
    copy = tmp_path / "copy.db"
    assert run("db", "backup", str(copy), url=here.url).returncode == 0
    following = subprocess.Popen(
        command("logs", "-f", "research-7"), env=environment({"LASH_URL": here.url}), stdout=subprocess.PIPE
    )
    try:
        assert following.stdout is not None
        following.stdout.readline()
        ended = run("db", "restore", str(copy), "--yes", url=here.url)
        assert ended.returncode == 4, ended.stderr
        assert "is in use" in ended.stderr
    finally:
        following.kill()
        following.wait()
        if following.stdout is not None:
            following.stdout.close()
    assert [*tmp_path.glob("*replaced*"), *tmp_path.glob("*partial*")] == []
    assert len(values("sessions", "ls", url=here.url)) == 1


def test_damaged_and_foreign_files_are_not_restored(here: Seeded, tmp_path: Path) -> None:
    """A backup is verified before anything is replaced."""
    copy = tmp_path / "copy.db"
    assert run("db", "backup", str(copy), url=here.url).returncode == 0
    whole = copy.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:8192] + bytes(8192) + whole[16384:], b"no database"):
        copy.write_bytes(damaged)
        ended = run("db", "restore", str(copy), "--yes", url=here.url)
        assert ended.returncode == 1, ended
        assert "Traceback" not in ended.stderr
    assert len(values("sessions", "ls", url=here.url)) == 1


def test_postgres_is_told_the_command_to_use(postgres_schema_url: str) -> None:
    """The refusal names pg_dump with schema, file and server, and no password."""
    ended = run("db", "backup", "copy.dump", url=with_parameters(postgres_schema_url, password="hidden-pw"))
    assert ended.returncode == 2
    assert "pg_dump --format=custom --schema=test_" in ended.stderr
    assert "--file=copy.dump" in ended.stderr
    assert "hidden-pw" not in ended.stderr


def test_ctrl_c_leaves_no_partial_copy(here: Seeded, tmp_path: Path) -> None:
    """An interrupted backup leaves neither the copy nor a part of it."""
    asyncio.run(_grow(here.url))
    with terminal("db", "backup", str(tmp_path / "copy.db"), url=here.url) as screen:
        deadline = time.monotonic() + PATIENCE_S
        while not list(tmp_path.glob("copy.db.*.partial")):
            assert time.monotonic() < deadline
        screen.type("\x03")
        code = screen.end()
    # A fast machine may finish before the signal arrives.
    assert code in (0, 130), screen.text
    assert "Traceback" not in screen.text
    assert {file.name for file in tmp_path.glob("copy.db*")} == ({"copy.db"} if code == 0 else set())


async def _grow(url: str) -> None:
    async with await lash.open(url) as storage:
        await storage.sessions.create("big")
        for revision in range(40):
            made = commit(revision, node(f"n{revision}", None, "x" * 1_000_000), session_id="big")
            await storage.session("big").commit(made)
