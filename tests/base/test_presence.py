"""The lock of presence: it proves that a process has ended, and nothing else does."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lash.backend.presence import is_over, own_mark
from tests.other_user import STRANGER, needs_root, run_as

WAITS = "import sys; from lash.backend.presence import own_mark; print(own_mark(), flush=True); sys.stdin.read()"

FORKS = """
import os, sys
from lash.backend.presence import own_mark
mark, child = own_mark(), os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(mark, flush=True)
sys.stdin.read()
"""
PATIENCE_S = 60


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of this user's marks, below a directory for temporary files of this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"lash-{os.geteuid()}"


@contextmanager
def present(directory: Path, program: str = WAITS) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a process with a mark, and yield both; it is killed at the end."""
    variables = {**os.environ, "TMPDIR": str(directory.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_a_process_is_over_when_it_has_ended(directory: Path) -> None:
    """Its lock is held while it lives, however it ends; the proof can be had again and again."""
    with present(directory) as (process, mark):
        assert is_over(mark) is False
        process.kill()
        process.wait()
        assert [is_over(mark), is_over(mark)] == [True, True]


def test_an_orderly_end_leaves_no_file(directory: Path) -> None:
    """Only killed processes leave their files."""
    with present(directory) as (process, mark):
        assert [file.name for file in directory.iterdir()] == [mark.partition(".")[0]]
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert list(directory.iterdir()) == []


def test_the_orderly_end_of_a_child_leaves_the_file_of_its_parent(directory: Path) -> None:
    """A child that was forked and ended is not its parent."""
    with present(directory, FORKS) as (_process, mark):
        assert is_over(mark) is False
        assert [file.name for file in directory.iterdir()] == [mark.partition(".")[0]]


def test_this_process_is_not_over() -> None:
    """The mark of a process stays the same, and a process does not prove its own end."""
    mark = own_mark()
    assert mark is not None
    assert own_mark() == mark
    assert is_over(mark) is False


def test_a_forked_child_is_another_process() -> None:
    """A child has a mark of its own, and its end is not that of its parent."""
    mark = own_mark()
    assert mark is not None
    child = os.fork()
    if child == 0:
        os._exit(0 if own_mark() not in (None, mark) and not is_over(mark) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_over(mark) is False


def test_a_child_does_not_outlive_its_parent_in_its_place(directory: Path) -> None:
    """The lock of a killed parent is free although a child that it forked still runs."""
    # The child prints, so that it has left the lock by then.
    forks = WAITS.replace("print(own_mark()", "import os; mark = own_mark(); pid = os.fork(); pid or print(mark")
    with present(directory, forks) as (process, mark):
        process.kill()
        process.wait()
        assert is_over(mark) is True


@pytest.mark.parametrize("mark", ["", "x", "../../etc/passwd.1", "0" * 32, f"{'0' * 32}.1", f"{'0' * 32}.-1", "a.b"])
def test_a_mark_of_no_file_proves_nothing(directory: Path, mark: str) -> None:
    """A row that another program wrote names no path, and a missing file proves nothing."""
    assert is_over(mark) is False


def test_a_copy_proves_nothing(directory: Path) -> None:
    """A copy of a file system has the name of the file but not its lock."""
    with present(directory) as (_process, mark):
        file = directory / mark.partition(".")[0]
        shutil.copy(file, directory / "copy")
        (directory / "copy").replace(file)
        assert is_over(mark) is False


def test_a_link_is_not_followed(directory: Path) -> None:
    """Only a file in the directory itself is opened."""
    directory.mkdir(0o700)
    target = directory / "target"
    target.touch()
    (directory / ("0" * 32)).symlink_to(target)
    assert is_over(f"{'0' * 32}.{target.stat().st_ino}") is False


def test_the_files_are_private(directory: Path) -> None:
    """No other user can lock a file or plant one."""
    with present(directory) as (_process, mark):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / mark.partition(".")[0]).stat().st_mode) == 0o600


@needs_root
@pytest.mark.parametrize("planted", ["open", "foreign", "file"])
def test_a_planted_directory_is_not_used(directory: Path, planted: str) -> None:
    """Without a private directory a process gets no mark and proves nothing."""
    if planted == "file":
        directory.touch()
    else:
        directory.mkdir(0o777 if planted == "open" else 0o700)
        directory.chmod(0o777 if planted == "open" else 0o700)
    if planted == "foreign":
        os.chown(directory, STRANGER, STRANGER)
    with present(directory) as (_process, mark):
        assert mark == "None"
    assert is_over(f"{'0' * 32}.1") is False


@needs_root
def test_a_user_without_a_place_for_temporary_files_has_no_mark(directory: Path) -> None:
    """A mark that cannot be made is None, not an error."""
    directory.parent.chmod(0o755)

    def none() -> None:
        assert own_mark() is None

    assert run_as(STRANGER, none) == 0


def test_old_files_are_removed(directory: Path) -> None:
    """Files of processes that ended days ago are removed by the next start; files of living ones stay."""
    with present(directory) as (_process, living), present(directory) as (ended, recent):
        ended.kill()
        ended.wait()
        (directory / ("1" * 32)).touch()
        names = [mark.partition(".")[0] for mark in (living, recent)]
        for name in (names[0], "1" * 32):
            os.utime(directory / name, (1, 1))
        with present(directory) as (_third, mark):
            assert {file.name for file in directory.iterdir()} == {*names, mark.partition(".")[0]}
