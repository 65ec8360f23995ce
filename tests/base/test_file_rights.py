"""A copy is open to no more users than its source, and no name is followed through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lash.base.file_rights import (
    FileRights,
    copy_mode,
    create_copy,
    create_file,
    create_replacement,
    name_copy,
    partial_name,
    rights_of,
    writers_mode,
)
from tests.other_user import needs_root, reachable_directory, run_as


@pytest.fixture(params=[0o000, 0o022, 0o027, 0o077], ids="umask-{:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Each of the usual umasks, while the test runs."""
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(
    ("database", "lock"),
    [(0o600, 0o600), (0o644, 0o600), (0o640, 0o600), (0o660, 0o660), (0o664, 0o660), (0o666, 0o666), (0o400, 0o600)],
)
def test_a_lock_is_for_writers(database: int, lock: int) -> None:
    """Users who may only read the database cannot open its lock files."""
    assert writers_mode(database) == lock


@pytest.mark.parametrize(
    ("source", "umask", "copy"),
    [
        (0o600, 0o000, 0o600),
        (0o644, 0o000, 0o644),
        (0o644, 0o077, 0o600),
        (0o660, 0o022, 0o640),
        (0o400, 0o000, 0o600),
        (0o755, 0o000, 0o644),
    ],
)
def test_a_copy_has_the_rights_of_its_source_within_the_umask(source: int, umask: int, copy: int) -> None:
    """Neither the source nor the umask is exceeded; the owner can always use the copy."""
    assert copy_mode(source, umask) == copy


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660])
def test_a_created_copy_grants_no_more(tmp_path: Path, umask: int, mode: int) -> None:
    """The file on the disk has the bits of the source without those of the umask."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.touch()
    source.chmod(mode)
    os.close(create_copy(copy, source))
    assert mode_of(copy) == mode & ~umask


def test_a_copy_of_something_else_than_a_file_is_private(tmp_path: Path, umask: int) -> None:
    """A copy from a server, or of a file that is gone, is for its owner only."""
    os.close(create_copy(tmp_path / "copy", None))
    os.close(create_copy(tmp_path / "other", tmp_path / "gone"))
    assert [mode_of(tmp_path / "copy"), mode_of(tmp_path / "other")] == [0o600, 0o600]


@needs_root
def test_the_group_of_a_copy_is_that_of_its_source(tmp_path: Path) -> None:
    """Rights of a group are rights of the same group."""
    source = tmp_path / "source"
    source.touch()
    source.chmod(0o640)
    os.chown(source, 1234, 4321)
    os.close(create_copy(tmp_path / "copy", source))
    assert rights_of(tmp_path / "copy") == FileRights(0, 4321, 0o640)


@needs_root
def test_a_copy_without_the_group_has_no_rights_for_a_group() -> None:
    """A user outside the group of the source grants its own group nothing."""
    with reachable_directory() as directory:
        directory.chmod(0o777)
        source, copy = directory / "source", directory / "copy"
        source.touch()
        source.chmod(0o664)
        os.chown(source, 1234, 4321)
        assert run_as(5678, lambda: os.close(create_copy(copy, source))) == 0
        assert rights_of(copy) == FileRights(5678, 5678, 0o604)


@needs_root
def test_a_replacement_has_owner_group_and_bits(tmp_path: Path, umask: int) -> None:
    """A file restored by root stays usable to the user who owned the replaced one, whatever the umask."""
    old = FileRights(1234, 4321, 0o660)
    os.close(create_replacement(tmp_path / "new", old))
    assert rights_of(tmp_path / "new") == old


@pytest.mark.parametrize("name", ["dangling", "link", "file"])
def test_a_taken_name_is_not_followed(tmp_path: Path, name: str) -> None:
    """Neither creating nor naming a file writes through a link or over a file."""
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "file").write_text("taken")
    (tmp_path / "made.partial").write_text("new")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / name)
    with pytest.raises(FileExistsError):
        name_copy(tmp_path / "made.partial", tmp_path / name)
    assert not (tmp_path / "nothing").exists()
    assert [(tmp_path / each).read_text() for each in ("victim", "file")] == ["untouched", "taken"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, taken: bool) -> None:
    """A copy gets its name there too, and overwrites nothing."""

    def refused(*_arguments: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    partial, target = tmp_path / "made.partial", tmp_path / "made"
    partial.write_text("new")
    if taken:
        target.write_text("old")
        with pytest.raises(FileExistsError):
            name_copy(partial, target)
    else:
        name_copy(partial, target)
    assert target.read_text() == ("old" if taken else "new")


def test_a_failed_link_is_an_error(tmp_path: Path) -> None:
    """Trouble other than a missing feature is reported."""
    with pytest.raises(FileNotFoundError):
        name_copy(tmp_path / "gone", tmp_path / "made")


def test_partial_names_are_unique_and_have_no_link(tmp_path: Path) -> None:
    """Two unfinished copies of one name do not share a file, and SQLite opens the name without following links."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    names = {partial_name(tmp_path / "link" / "copy.db") for _ in range(10)}
    assert len(names) == 10
    assert {name.parent for name in names} == {(tmp_path / "real").resolve()}


def test_group_bits_of_an_access_list_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an access control list the group bits are its mask; the group itself may have no rights."""
    source = tmp_path / "source"
    source.touch()
    source.chmod(0o660)
    monkeypatch.setattr(os, "listxattr", lambda _path: ["system.posix_acl_access"])
    os.close(create_copy(tmp_path / "copy", source))
    assert mode_of(tmp_path / "copy") == 0o600
