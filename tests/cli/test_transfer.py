"""Exporting, importing, copying and moving with the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import run, values
from tests.cli.seed import Seeded


def test_a_session_goes_into_a_file_and_comes_back_under_another_id(seeded: Seeded, tmp_path: Path) -> None:
    """An imported session exports to the same content; repeating it changes nothing."""
    file, again = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    (exported,) = values("sessions", "export", "support-42", str(file), url=seeded.url)
    assert exported["bytes"] == file.stat().st_size
    (imported,) = values("sessions", "import", str(file), "--as", "copy", url=seeded.url)
    assert (imported["session_id"], imported["created"]) == ("copy", True)
    (repeated,) = values("sessions", "import", str(file), "--as", "copy", url=seeded.url)
    assert repeated["created"] is False
    (copied,) = values("sessions", "export", "copy", str(again), url=seeded.url)
    assert copied["content"] == exported["content"]


def test_a_file_is_never_overwritten_and_never_half_written(seeded: Seeded, tmp_path: Path) -> None:
    """A taken name is a conflict; an unknown session leaves no file."""
    file = tmp_path / "one.jsonl"
    file.write_text("mine")
    assert run("sessions", "export", "support-42", str(file), url=seeded.url).returncode == 4
    assert file.read_text() == "mine"
    missing = tmp_path / "missing.jsonl"
    assert run("sessions", "export", "unknown", str(missing), url=seeded.url).returncode == 3
    assert list(tmp_path.glob("missing*")) == []


def test_a_bad_file_is_refused_with_the_number_of_its_line(seeded: Seeded, tmp_path: Path) -> None:
    """Nothing is imported from it."""
    file = tmp_path / "bad.jsonl"
    file.write_text('{"no": "header"}\n')
    refused = run("sessions", "import", str(file), "--as", "new", url=seeded.url)
    assert refused.returncode == 2
    assert "line 1" in refused.stderr
    assert run("sessions", "show", "new", url=seeded.url).returncode == 3


def test_a_storage_is_copied_into_another(seeded: Seeded, tmp_path: Path) -> None:
    """The target has its sessions; a second copy skips them, and a copy into itself is refused."""
    target = f"sqlite:///{tmp_path / 'target.db'}"
    (report,) = values("db", "copy", target, url=seeded.url)
    ids = {each["meta"]["session_id"] for each in values("sessions", "ls", url=seeded.url)}
    assert {each["meta"]["session_id"] for each in values("sessions", "ls", url=target)} == ids
    assert report["refused"] == []
    (again,) = values("db", "copy", target, url=seeded.url)
    assert sum(again["copied"].values()) == 0
    assert run("db", "copy", seeded.url, url=seeded.url).returncode == 2


def test_a_storage_is_moved_into_an_empty_one(seeded: Seeded, tmp_path: Path) -> None:
    """The target has its processes too; a second move is refused, and so is a move into itself."""
    target = f"sqlite:///{tmp_path / 'target.db'}"
    (report,) = values("db", "move", target, url=seeded.url)
    for listing, table in ((("sessions", "ls"), "lash_sessions"), (("ps", "-a"), "lash_processes")):
        there = values(*listing, url=target)
        assert there == values(*listing, url=seeded.url)
        assert report["rows"][table] == len(there) > 0
    again = run("db", "move", target, url=seeded.url)
    assert again.returncode == 4
    assert "not empty" in again.stderr
    assert run("db", "move", seeded.url, url=seeded.url).returncode == 2


@pytest.mark.parametrize("verb", ["copy", "move"])
@pytest.mark.parametrize("target", ["sqlite://", "nonsense"])
def test_a_target_outlives_the_command(verb: str, target: str, tmp_path: Path) -> None:
    """A target in memory, or one that is not a storage, is refused before anything is read."""
    url = f"sqlite:///{tmp_path / 'none.db'}"
    assert run("db", verb, target, url=url).returncode == 2
    assert not list(tmp_path.iterdir())
