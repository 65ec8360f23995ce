"""Lock files: only users who may write the database can open them, and no link is followed."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lash.base.file_rights import FileRights
from lash.errors import StorageFailure
from lash.sqlite.engine.lock_file import is_trusted
from lash.sqlite.engine.write_lock import open_write_lock
from tests.engine.sqlite.kit import insert, open_database
from tests.other_user import STRANGER, needs_root, reachable_directory, run_as

ENDINGS = (".lock", ".turn")
ALICE, BOB, CAROL, AGENTS = 2001, 2002, 2003, 3000
DATABASE = FileRights(ALICE, AGENTS, 0o660)


@pytest.fixture
def directory() -> Iterator[Path]:
    with reachable_directory() as made:
        yield made


@pytest.fixture(params=[0o000, 0o022, 0o027, 0o077], ids="umask-{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


def rights(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def modes_in(directory: Path) -> dict[str, int]:
    return {file.name: rights(file)[2] for file in directory.iterdir()}


def open_and_close(path: Path) -> None:
    open_write_lock(str(path), timeout_ms=0).close()


@pytest.mark.parametrize(
    ("lock", "links", "database", "user", "trusted"),
    [
        (FileRights(ALICE, ALICE, 0o666), 1, None, ALICE, True),
        (FileRights(BOB, BOB, 0o600), 1, None, ALICE, False),
        (FileRights(BOB, BOB, 0o666), 1, None, 0, True),
        (FileRights(ALICE, AGENTS, 0o660), 2, DATABASE, ALICE, False),
        (FileRights(ALICE, AGENTS, 0o660), 1, DATABASE, BOB, True),
        (FileRights(ALICE, AGENTS, 0o664), 1, DATABASE, BOB, False),
        (FileRights(0, 0, 0o600), 1, DATABASE, BOB, True),
        (FileRights(CAROL, AGENTS, 0o660), 1, DATABASE, BOB, True),
        (FileRights(CAROL, CAROL, 0o660), 1, DATABASE, BOB, False),
        (FileRights(CAROL, AGENTS, 0o600), 1, FileRights(ALICE, AGENTS, 0o640), BOB, False),
        (FileRights(CAROL, CAROL, 0o666), 1, FileRights(ALICE, AGENTS, 0o666), BOB, True),
    ],
    ids=[
        "own file without a database",
        "file of another without a database",
        "root corrects any",
        "second name",
        "file of the owner",
        "open to readers",
        "file of root",
        "file of a member",
        "file of a stranger",
        "file of a reader",
        "database for all",
    ],
)
def test_which_lock_files_are_trusted(
    lock: FileRights, links: int, database: FileRights | None, user: int, *, trusted: bool
) -> None:
    """A lock file is used only if no user but the writers of the database can lock it."""
    assert is_trusted(lock, links, database, user) is trusted


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660, 0o664, 0o666])
async def test_the_files_beside_a_database_have_its_rights(tmp_path: Path, umask: int, mode: int) -> None:
    """Log and index have the rights of the database, lock files those of its writers, whatever the umask."""
    path = tmp_path / "x.db"
    path.touch()
    path.chmod(mode)
    for _opening in range(2):
        database = await open_database(path)
        await database.write(insert(_opening))
        found = modes_in(tmp_path)
        await database.close()
        writers = 0o600 | (mode & 0o222) * 3
        assert found == {
            **{f"x.db{ending}": mode for ending in ("", "-wal", "-shm")},
            **{f"x.db{ending}": writers for ending in ENDINGS},
        }


async def test_a_new_database_gets_private_lock_files(tmp_path: Path, umask: int) -> None:
    """The lock files are created before the database, and are for its writers as soon as it is open."""
    database = await open_database(tmp_path / "x.db")
    await database.close()
    mode = rights(tmp_path / "x.db")[2]
    assert mode == 0o644 & ~umask
    assert {rights(tmp_path / f"x.db{ending}")[2] for ending in ENDINGS} == {0o600}


async def test_lock_files_of_an_earlier_version_are_corrected(tmp_path: Path) -> None:
    """Files that all users could open are closed to them when a storage is opened."""
    for ending in ENDINGS:
        (tmp_path / f"x.db{ending}").touch()
        (tmp_path / f"x.db{ending}").chmod(0o644)
    database = await open_database(tmp_path / "x.db")
    assert {rights(tmp_path / f"x.db{ending}")[2] for ending in ENDINGS} == {0o600}
    await database.close()


@needs_root
@pytest.mark.parametrize("mode", [0o600, 0o644])
async def test_another_user_cannot_stop_the_writers(directory: Path, mode: int) -> None:
    """A user who may at most read the database cannot open a lock file, so it cannot hold the lock."""
    path = directory / "x.db"
    path.touch()
    path.chmod(mode)
    database = await open_database(path)

    def lock(ending: str) -> None:
        fcntl.flock(os.open(f"{path}{ending}", os.O_RDONLY), fcntl.LOCK_EX)

    for ending in ENDINGS:
        assert run_as(STRANGER, functools.partial(lock, ending)) == errno.EACCES
    assert await database.write(insert(1)) == 1
    await database.close()


@needs_root
def test_root_leaves_the_lock_files_to_the_owner(directory: Path) -> None:
    """A storage that root opened stays usable to the user and the group who own it."""
    path = directory / "x.db"
    path.touch()
    path.chmod(0o660)
    os.chown(path, ALICE, AGENTS)
    open_and_close(path)
    assert {rights(directory / f"x.db{ending}") for ending in ENDINGS} == {(ALICE, AGENTS, 0o660)}
    assert run_as(ALICE, lambda: open_and_close(path)) == 0
    assert run_as(BOB, lambda: open_and_close(path), groups=(AGENTS,)) == 0


@needs_root
def test_a_planted_lock_file_is_replaced(directory: Path) -> None:
    """A lock file of a user who may not write the database is not used, not even while it is locked."""
    path = directory / "x.db"
    path.touch()
    path.chmod(0o600)
    for file in (directory, path):
        os.chown(file, ALICE, ALICE)
    planted = [directory / f"x.db{ending}" for ending in ENDINGS]
    for file in planted:
        file.touch()
        os.chown(file, STRANGER, STRANGER)
        file.chmod(0o666)
    held = [os.open(file, os.O_RDONLY) for file in planted]
    for descriptor in held:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def write() -> None:
        lock = open_write_lock(str(path), timeout_ms=0)
        lock.acquire()

    try:
        assert run_as(ALICE, write) == 0
    finally:
        for descriptor in held:
            os.close(descriptor)
    assert {rights(file) for file in planted} == {(ALICE, ALICE, 0o600)}


@needs_root
def test_a_planted_lock_file_that_cannot_be_replaced_is_refused(directory: Path) -> None:
    """In a directory such as /tmp only its owner can remove a file; the error names it."""
    directory.chmod(0o1777)
    path = directory / "x.db"
    (directory / "x.db.turn").touch()
    os.chown(directory / "x.db.turn", STRANGER, STRANGER)
    (directory / "x.db.turn").chmod(0o666)

    def refused() -> None:
        with pytest.raises(StorageFailure, match=r"x\.db\.turn belongs to another user"):
            open_and_close(path)

    assert run_as(ALICE, refused) == 0


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("exists", [True, False], ids=["victim", "dangling"])
def test_a_link_is_refused(tmp_path: Path, ending: str, *, exists: bool) -> None:
    """A symbolic link in place of a lock file is neither followed nor changed, and the error names it."""
    victim = tmp_path / "victim"
    if exists:
        victim.touch(0o644)
    (tmp_path / f"x.db{ending}").symlink_to(victim)
    with pytest.raises(StorageFailure, match=rf"x\.db\{ending}: it is a symbolic link"):
        open_and_close(tmp_path / "x.db")
    assert victim.exists() is exists
    assert not exists or rights(victim)[2] == 0o644


def test_a_hard_link_is_replaced_and_its_other_name_kept(tmp_path: Path) -> None:
    """The rights of a file that has another name do not change."""
    victim = tmp_path / "victim"
    victim.touch(0o644)
    (tmp_path / "x.db.lock").hardlink_to(victim)
    open_and_close(tmp_path / "x.db")
    assert rights(victim)[2] == 0o644
    assert (tmp_path / "x.db.lock").stat().st_ino != victim.stat().st_ino


def test_a_pipe_does_not_stop_the_process(tmp_path: Path) -> None:
    """Anything but a file in place of a lock file is refused at once."""
    os.mkfifo(tmp_path / "x.db.lock")
    with pytest.raises(StorageFailure, match="not a regular file"):
        open_and_close(tmp_path / "x.db")
