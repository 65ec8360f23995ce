"""Marks of writes beside a database: each group of processes sees those of the others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lash.sqlite.write_marks import WriteMarks, open_write_marks

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows needs no marks")


@pytest.fixture
def database(tmp_path: Path) -> str:
    (tmp_path / "x.db.turn").touch()
    return os.fspath(tmp_path / "x.db")


def test_the_marks_of_other_groups_are_news_once(database: str) -> None:
    """A group sees that any other has written since its last call, and nothing of its own writes."""
    ours, same, others = WriteMarks(database, "a"), WriteMarks(database, "a"), WriteMarks(database, "b")
    assert not ours.has_news()
    others.add()
    assert [ours.has_news(), ours.has_news(), others.has_news()] == [True, False, False]
    ours.add()
    same.add()
    assert [ours.has_news(), same.has_news(), others.has_news()] == [False, True, True]
    others.add()
    ours.add()
    assert [ours.has_news(), others.has_news()] == [True, True]
    assert not WriteMarks(database, "c").has_news()


def test_a_file_that_is_missing_or_replaced(database: str) -> None:
    """Nothing fails without the file, and a new one is used."""
    ours, others = WriteMarks(database, "a"), WriteMarks(database, "b")
    Path(database + ".turn").unlink()
    others.add()
    assert not ours.has_news()
    Path(database + ".turn").touch()
    others.add()
    assert ours.has_news()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_a_file_is_marked(database: str, tmp_path: Path, kind: str) -> None:
    """A symbolic link is not followed, and a pipe stops no process."""
    Path(database + ".turn").unlink()
    target = tmp_path / "target"
    target.touch()
    if kind == "link":
        Path(database + ".turn").symlink_to(target)
    else:
        os.mkfifo(database + ".turn")
    marks = WriteMarks(database, "a")
    marks.add()
    assert not marks.has_news()
    assert target.read_bytes() == b""


def test_in_memory_nothing_is_marked() -> None:
    """A database in memory has one storage."""
    assert open_write_marks(None, "a") is None
