"""Bytes in files are whole or absent, whichever process dies and whatever files it left behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path

import pytest

import lash
from lash.bytestore.file import FileBytes
from lash.errors import ConfigError, CorruptData, InvalidInput, StorageFailure
from lash.model.session.session import Durability

CONTENT = b"content" * 100
ID = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "root"


@pytest.fixture
def files(root: Path) -> FileBytes:
    return FileBytes(root)


def files_below(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def modes_below(root: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}


def path_of(root: Path) -> Path:
    return root / "sha256" / ID[:2] / ID


async def test_a_file_lies_under_its_digest(files: FileBytes, root: Path) -> None:
    """The bytes are in <root>/sha256/<2 digits>/<id>, and no temporary file remains."""
    await files.put(ID, CONTENT)
    assert files_below(root) == [path_of(root)]
    assert path_of(root).read_bytes() == CONTENT
    assert await files.get(ID) == CONTENT
    assert files.durability is Durability.DURABLE


async def test_what_is_not_there_is_none(files: FileBytes) -> None:
    """Reads, deletes and sweeps of a directory that does not exist find nothing and raise no error."""
    assert await files.get(ID) is None
    await files.delete(ID)
    assert await files.sweep_stale() == 0


async def test_a_deleted_file_is_gone(files: FileBytes) -> None:
    """Deleting removes the file; deleting again is no error."""
    await files.put(ID, CONTENT)
    await files.delete(ID)
    await files.delete(ID)
    assert await files.get(ID) is None


async def test_file_and_folders_are_forced_to_the_disk(
    files: FileBytes, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a put returns, it has synced the file before its rename, and each new directory's parent after."""
    events: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        events.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    await files.put(ID, CONTENT)
    renamed = events.index("rename")
    assert events[renamed - 1].startswith(str(root / "temporary" / ID))
    assert events[renamed + 1 :] == [str(path_of(root).parent)]
    assert {str(root.parent.parent), str(root.parent), str(root), str(root / "sha256")} <= set(events[:renamed])
    events.clear()
    await files.put(ID, CONTENT)
    assert events == [str(path_of(root)), str(path_of(root).parent)], "its writer may have died before the fsync"


@pytest.mark.parametrize("left", [b"", CONTENT[:50], b"x" * len(CONTENT)])
async def test_a_damaged_file_is_replaced(files: FileBytes, root: Path, left: bytes) -> None:
    """A put over a truncated or swapped file repairs it."""
    path_of(root).parent.mkdir(parents=True)
    path_of(root).write_bytes(left)
    await files.put(ID, CONTENT)
    assert await files.get(ID) == CONTENT


async def test_a_truncated_file_is_corrupt_data(tmp_path: Path, root: Path) -> None:
    """Reads check the bytes against the id, so half a file is never returned."""
    url = f"sqlite:///{tmp_path / 'lash.db'}"
    async with await lash.open(url, attachment_bytes=FileBytes(root)) as storage:
        await storage.sessions.create("s")
        ref = await storage.attachments.put("s", CONTENT, "text/plain")
        with path_of(root).open("r+b") as file:
            file.truncate(10)
        with pytest.raises(CorruptData, match=ref.id):
            await storage.attachments.get("s", ref.id)
        path_of(root).unlink()
        await storage.attachments.commit_refs("s", [ref.id])
        with pytest.raises(CorruptData, match="missing"):
            await storage.attachments.get("s", ref.id)


async def test_stale_temporaries_are_ignored_and_tidied(files: FileBytes, root: Path) -> None:
    """Files left by a dead put do not disturb the next put, and are removed once no put can be writing them."""
    await files.put(ID, CONTENT)
    stale, fresh = root / "temporary" / f"{ID}.stale", root / "temporary" / f"{ID}.fresh"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (1, 1))
    await files.delete(ID)
    await files.put(ID, CONTENT)
    assert await files.get(ID) == CONTENT
    assert await files.sweep_stale() == 1
    assert [path.name for path in (root / "temporary").iterdir()] == [fresh.name]


async def test_a_sweep_tidies(tmp_path: Path, root: Path) -> None:
    """A sweep reports the stale files it removed; a dry run removes none."""

    async def gone(entry: lash.model.AttachmentEntry) -> bool:
        return True

    async with await lash.open(f"sqlite:///{tmp_path / 'lash.db'}", attachment_bytes=FileBytes(root)) as storage:
        (root / "temporary").mkdir(parents=True)
        (root / "temporary" / "stale").touch()
        os.utime(root / "temporary" / "stale", (1, 1))
        assert (await storage.attachments.sweep(0, gone, dry_run=True)).stale_files == 0
        assert (await storage.attachments.sweep(0, gone)).stale_files == 1
        assert (await storage.attachments.sweep(0, gone)).stale_files == 0


async def test_a_failed_write_leaves_nothing(files: FileBytes, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk refuses before the rename, neither the file nor a temporary file exists, and a retry works."""

    def refuse(descriptor: int) -> None:
        if "temporary/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StorageFailure, match="No space left on device"):
            await files.put(ID, CONTENT)
    assert files_below(root) == []
    await files.put(ID, CONTENT)
    assert await files.get(ID) == CONTENT


async def test_what_the_disk_refuses_is_a_storage_failure(files: FileBytes, root: Path) -> None:
    """Driver exceptions never escape: with a directory in place of a file, every call raises lash's error."""
    path_of(root).mkdir(parents=True)
    (path_of(root) / "x").touch()
    for call in (files.put(ID, CONTENT), files.get(ID), files.delete(ID)):
        with pytest.raises(StorageFailure, match=ID) as raised:
            await call
        assert isinstance(raised.value.__cause__, OSError)
    (root / "temporary").touch()
    with pytest.raises(StorageFailure, match="sweep_stale"):
        await files.sweep_stale()


@pytest.mark.parametrize("bad", ["", "..", "../" + "0" * 61, "/etc/passwd", "A" * 64, "0" * 64 + "/x", "\0" * 64])
async def test_no_other_text_becomes_a_path(files: FileBytes, root: Path, bad: str) -> None:
    """An id that is not 64 lowercase hex digits never reaches the file system."""
    for call in (files.put(bad, CONTENT), files.get(bad), files.delete(bad)):
        with pytest.raises(InvalidInput):
            await call
    assert files_below(root.parent) == []


async def test_many_puts_of_the_same_bytes_agree(files: FileBytes, root: Path) -> None:
    """Concurrent puts of one digest each succeed and leave one whole file."""
    await asyncio.gather(*(files.put(ID, CONTENT) for _ in range(20)))
    assert [path.read_bytes() for path in files_below(root)] == [CONTENT]


def test_the_folder_must_be_absolute() -> None:
    """A relative directory is refused: it would depend on where the process was started."""
    with pytest.raises(ConfigError, match="absolute"):
        FileBytes("attachments")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids="umask-{:03o}".format)
async def test_attachments_are_for_the_owner(files: FileBytes, root: Path, umask: int) -> None:
    """A directory that lash creates, and everything in it, is for its owner only, whatever the umask."""
    before = os.umask(umask)
    try:
        await files.put(ID, CONTENT)
    finally:
        os.umask(before)
    assert modes_below(root) == {0o700, 0o600}


async def test_attachments_have_the_rights_of_their_directory(tmp_path: Path) -> None:
    """In a directory that a group shares, the group can read the files."""
    root = tmp_path / "root"
    before = os.umask(0o000)
    try:
        os.mkdir(root, 0o750)  # noqa: PTH102 (a call that does not block for long)
        await FileBytes(root).put(ID, CONTENT)
    finally:
        os.umask(before)
    assert modes_below(root) == {0o750, 0o640}
