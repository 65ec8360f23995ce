from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import apsw
import pytest

from lash.errors import ConfigError, CorruptData, ForeignDatabase, NewerSchema, StoreUnavailable
from lash.sqlite.engine import location
from lash.sqlite.engine.database import SQLiteOptions
from tests.engine.sqlite.kit import create_tables, ids, insert, open_database

ROOT = Path(__file__).parents[3]
MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/shared nfs4 rw,vers=4.2 0 0
//server/x /mnt/with\\040space cifs rw 0 0
/dev/vdb /mnt/shared/local ext4 rw 0 0
me@host:/ /home/me/far fuse.sshfs rw 0 0
C:\\134 /mnt/c 9p rw 0 0
"""


def names_in(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def writer_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lash-sqlite")]


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """A directory instead of a file raises ConfigError."""
    with pytest.raises(ConfigError, match="directory"):
        await open_database(tmp_path)


async def test_the_folder_must_exist(tmp_path: Path) -> None:
    """A missing parent directory is named in the error, and not created."""
    with pytest.raises(ConfigError, match=r"no such directory: .*missing"):
        await open_database(tmp_path / "missing" / "x.db")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_no_file_name(path: str) -> None:
    """An invalid file name is refused; to SQLite an empty one would mean a temporary database."""
    with pytest.raises(ConfigError, match="expected a file name"):
        await open_database(path)


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """A text file stays unchanged, and no thread is left."""
    file = tmp_path / "notes.txt"
    file.write_text("dear diary " * 500)
    with pytest.raises(ForeignDatabase, match=r"notes\.txt"):
        await open_database(file)
    assert file.read_text() == "dear diary " * 500
    assert writer_threads() == []


async def test_a_truncated_file(tmp_path: Path) -> None:
    """A database that lost its tail is corrupt, not empty."""
    database = await open_database(tmp_path / "x.db")
    await database.write(lambda transaction: transaction.run("insert_bulk", payload=bytes(50_000)))
    await database.close()
    os.truncate(tmp_path / "x.db", 8192)
    with pytest.raises(CorruptData):
        await open_database(tmp_path / "x.db")


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A database that ``prepare`` refuses keeps every byte, its journal mode included."""
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = (tmp_path / "other.db").read_bytes()

    def refuse(_connection: apsw.Connection, new: bool) -> None:  # noqa: FBT001
        assert not new
        raise NewerSchema(9, 1)

    with pytest.raises(NewerSchema):
        await open_database(tmp_path / "other.db", prepare=refuse)
    assert (tmp_path / "other.db").read_bytes() == before
    assert writer_threads() == []


async def test_prepare_learns_whether_the_file_is_new(tmp_path: Path) -> None:
    """Only the first open of a file passes True for an empty database."""
    told: list[bool] = []

    def note(connection: apsw.Connection, new: bool) -> None:  # noqa: FBT001
        told.append(new)
        assert threading.current_thread().name == "lash-sqlite-writer"
        create_tables(connection, new)

    for _ in range(2):
        database = await open_database(tmp_path / "x.db", prepare=note)
        await database.close()
    assert told == [True, False]


async def test_errors_of_the_driver_in_prepare(tmp_path: Path) -> None:
    """An error of SQLite while the tables are prepared is translated."""

    def stumble(connection: apsw.Connection, _new: bool) -> None:  # noqa: FBT001
        connection.execute("SELECT * FROM nowhere")

    for path in (tmp_path / "x.db", None):
        with pytest.raises(Exception, match="nowhere") as caught:
            await open_database(path, prepare=stumble)
        assert not isinstance(caught.value, apsw.Error)
        assert isinstance(caught.value.__cause__, apsw.SQLError)


READ_ONLY = """
import asyncio, os, sys
from lash.errors import StorageFailure
from tests.engine.sqlite.kit import open_database
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(open_database(sys.argv[1]))
except StorageFailure as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_may_not_be_written(what: str) -> None:
    """A file or directory without write permission is refused with that reason, for an ordinary user."""
    with tempfile.TemporaryDirectory() as name:
        directory, file = Path(name), Path(name) / "x.db"
        connection = apsw.Connection(str(file))
        connection.execute("CREATE TABLE t (x)")
        connection.close()
        file.chmod(0o444 if what == "file" else 0o666)
        directory.chmod(0o777 if what == "file" else 0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            cwd=ROOT,
        )
        directory.chmod(0o700)
    assert done.stdout.startswith("refused:"), done.stderr


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/srv", "ext4"),
        ("/mnt/shared", "nfs4"),
        ("/mnt/shared/deep/er", "nfs4"),
        ("/mnt/shared-not", "ext4"),
        ("/mnt/shared/local/x", "ext4"),
        ("/mnt/with space/x", "cifs"),
        ("/home/me/far/away", "fuse.sshfs"),
        ("/mnt/c/Users", "9p"),
    ],
)
def test_the_file_system_of_a_folder(directory: str, kind: str) -> None:
    """The innermost mount decides, by whole names and with escapes read."""
    assert location.file_system_of(directory, mounts=MOUNTS) == kind
    if kind == "ext4":
        location.check_file_system(directory, mounts=MOUNTS)
    else:
        with pytest.raises(ConfigError, match="network file system"):
            location.check_file_system(directory, mounts=MOUNTS)


async def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening on a network file system is refused before a file is created."""
    (tmp_path / "mounts").write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(location, "_MOUNTS", tmp_path / "mounts")
    with pytest.raises(ConfigError, match="nfs4"):
        await open_database(tmp_path / "x.db")
    assert names_in(tmp_path) == ["mounts"]


async def test_a_hard_link(tmp_path: Path) -> None:
    """A file with two names is refused under both: each name would have its own log, and lose the other's commits."""
    await (await open_database(tmp_path / "x.db")).close()
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.db").hardlink_to(tmp_path / "x.db")
    for path in (tmp_path / "x.db", other / "x.db"):
        with pytest.raises(ConfigError, match=r"2 hard links.*delete all names but one"):
            await open_database(path)
    (other / "x.db").unlink()
    await (await open_database(tmp_path / "x.db")).close()


async def test_a_file_that_is_a_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a container mounts without its directory is refused: its log would stay in the container."""
    await (await open_database(tmp_path / "x y.db")).close()
    escaped = str(tmp_path / "x y.db").replace(" ", r"\040")
    (tmp_path / "mounts").write_text(f"/dev/vda / ext4 rw 0 0\n/dev/vda {escaped} ext4 rw 0 0\n")
    monkeypatch.setattr(location, "_MOUNTS", tmp_path / "mounts")
    with pytest.raises(ConfigError, match=r"mounted as a single file.*mount the directory"):
        await open_database(tmp_path / "x y.db")
    await (await open_database(tmp_path / "z.db")).close()


@pytest.mark.parametrize(
    ("version", "fine"), [("3.40.1", False), ("3.51.2", False), ("3.51.3", True), ("3.54.1", True)]
)
def test_the_oldest_sqlite(version: str, fine: bool) -> None:  # noqa: FBT001
    """Versions that can lose committed pages are refused."""
    if fine:
        location.check_sqlite_version(version)
    else:
        with pytest.raises(ConfigError, match=version):
            location.check_sqlite_version(version)


async def test_settings_of_the_connections(tmp_path: Path) -> None:
    """A file is opened in WAL mode, durable, with foreign keys and a cautious view of its schema."""
    seen: dict[str, object] = {}
    kept: list[apsw.Connection] = []

    def look(connection: apsw.Connection, new: bool) -> None:  # noqa: FBT001
        create_tables(connection, new)
        kept.append(connection)

    database = await open_database(tmp_path / "x.db", prepare=look)
    for name in (
        "journal_mode",
        "synchronous",
        "foreign_keys",
        "trusted_schema",
        "cell_size_check",
        "wal_autocheckpoint",
    ):
        seen[name] = kept[0].pragma(name)
    assert seen == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "wal_autocheckpoint": 0,
    }
    await database.close()


async def test_a_tool_that_holds_the_write_lock(tmp_path: Path) -> None:
    """Another program in a write transaction makes writes fail after the timeout, and only while it lasts."""
    database = await open_database(tmp_path / "x.db", options=SQLiteOptions(busy_timeout_ms=20))
    tool = apsw.Connection(str(tmp_path / "x.db"))
    tool.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await database.write(insert(1))
    assert not caught.value.outcome_unknown
    assert database.read(ids) == []
    tool.execute("ROLLBACK")
    tool.close()
    assert await database.write(insert(2)) == 1
    await database.close()


@pytest.mark.parametrize("option", ["group_limit", "checkpoint_pages", "reader_threads"])
def test_options_that_make_no_sense(option: str) -> None:
    """Counts must be positive; so must the timeout, and the mode must be known."""
    for wrong in ({option: 0}, {"busy_timeout_ms": -1}, {"loop_commit_ms": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            SQLiteOptions(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="synchronous"):
        SQLiteOptions(synchronous="off")  # type: ignore[arg-type]
