"""Files that commands create are open to no more users than the storage that they come from."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.kit import command, environment, run, values
from tests.cli.seed import Seeded, seed
from tests.other_user import needs_root

UMASKS = [0o000, 0o022, 0o077]


@pytest.fixture
def here(tmp_path: Path) -> Seeded:
    """A SQLite storage with one of everything, for its owner only."""
    made = seed(f"sqlite:///{tmp_path / 'agents.db'}")
    (tmp_path / "agents.db").chmod(0o600)
    return made


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def run_under(umask: int, *arguments: str, url: str) -> None:
    ended = subprocess.run(
        command(*arguments),
        env=environment({"LASH_URL": url}),
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("umask", UMASKS, ids="umask-{:03o}".format)
def test_no_file_of_a_command_grants_more_than_its_source(here: Seeded, tmp_path: Path, umask: int) -> None:
    """Backups, restored storages, exports and targets of a move of a private storage are private."""
    url = f"sqlite:///{tmp_path / 'restored.db'}"
    run_under(umask, "db", "backup", str(tmp_path / "copy.db"), url=here.url)
    run_under(umask, "db", "restore", str(tmp_path / "copy.db"), "--yes", url=url)
    run_under(umask, "sessions", "export", "support-42", str(tmp_path / "one.jsonl"), url=here.url)
    run_under(umask, "db", "move", f"sqlite:///{tmp_path / 'moved.db'}", url=url)
    made = {file.name: mode_of(file) for file in tmp_path.iterdir()}
    assert {"copy.db", "restored.db", "one.jsonl", "moved.db", "restored.db.lock", "moved.db.lock"} <= made.keys()
    assert set(made.values()) == {0o600}


def test_a_backup_has_the_rights_of_its_source_within_the_umask(here: Seeded, tmp_path: Path) -> None:
    """A storage that a group shares has backups that the group can read, unless the umask forbids it."""
    (tmp_path / "agents.db").chmod(0o660)
    run_under(0o000, "db", "backup", str(tmp_path / "shared.db"), url=here.url)
    run_under(0o077, "db", "backup", str(tmp_path / "private.db"), url=here.url)
    assert [mode_of(tmp_path / "shared.db"), mode_of(tmp_path / "private.db")] == [0o660, 0o600]


@needs_root
def test_a_restored_storage_has_the_rights_of_the_replaced_one(here: Seeded, tmp_path: Path) -> None:
    """A restore by root leaves the storage to its owner, with the same rights, and its lock files too."""
    assert run("db", "backup", str(tmp_path / "copy.db"), url=here.url).returncode == 0
    path = tmp_path / "agents.db"
    path.chmod(0o660)
    os.chown(path, 2001, 3000)
    assert run("db", "restore", str(tmp_path / "copy.db"), "--yes", url=here.url).returncode == 0
    for file in (path, tmp_path / "agents.db.lock", tmp_path / "agents.db.turn"):
        status = file.stat()
        assert (status.st_uid, status.st_gid, mode_of(file)) == (2001, 3000, 0o660)


def test_an_export_from_a_server_is_private(postgres_schema_url: str, tmp_path: Path) -> None:
    """PostgreSQL has no rights of files; what is copied from it into one is for its owner only."""
    seeded = seed(postgres_schema_url)
    run_under(0o000, "sessions", "export", "support-42", str(tmp_path / "one.jsonl"), url=seeded.url)
    run_under(0o000, "db", "move", f"sqlite:///{tmp_path / 'moved.db'}", url=seeded.url)
    assert [mode_of(tmp_path / "one.jsonl"), mode_of(tmp_path / "moved.db")] == [0o600, 0o600]


def test_planted_links_are_not_followed(here: Seeded, tmp_path: Path) -> None:
    """A link under the name of a copy, or of an unfinished copy, is not written through."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    names = ("copy.db", "copy.db.partial", "one.jsonl", "one.jsonl.partial", "agents.db.partial")
    for name in names:
        (tmp_path / name).symlink_to(victim if name.endswith("partial") else tmp_path / "nothing")
    assert run("db", "backup", str(tmp_path / "copy.db"), url=here.url).returncode == 4
    assert run("sessions", "export", "support-42", str(tmp_path / "one.jsonl"), url=here.url).returncode == 4
    (tmp_path / "copy.db").unlink()
    (tmp_path / "one.jsonl").unlink()
    assert run("db", "backup", str(tmp_path / "copy.db"), url=here.url).returncode == 0
    assert run("sessions", "export", "support-42", str(tmp_path / "one.jsonl"), url=here.url).returncode == 0
    assert run("db", "restore", str(tmp_path / "copy.db"), "--yes", url=here.url).returncode == 0
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "nothing").exists()
    assert len(values("sessions", "ls", url=here.url)) == 1


def test_a_backup_in_a_linked_directory(here: Seeded, tmp_path: Path) -> None:
    """The directory of a backup may be a link; only the name of the file must not be one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "backups").symlink_to(tmp_path / "real")
    assert run("db", "backup", str(tmp_path / "backups" / "copy.db"), url=here.url).returncode == 0
    assert [file.name for file in (tmp_path / "real").iterdir()] == ["copy.db"]


def test_the_doctor_warns_of_a_log_that_is_open_to_more_users(here: Seeded, tmp_path: Path) -> None:
    """A database that was made private while it was open has a log that is not; the remedy is named."""
    (checked,) = (each for each in values("doctor", url=here.url) if each["name"] == "file rights")
    assert (checked["state"], checked["detail"]) == ("ok", "600")
    (tmp_path / "agents.db-wal").touch()
    (tmp_path / "agents.db-wal").chmod(0o644)
    (warned,) = (each for each in values("doctor", url=here.url) if each["name"] == "file rights")
    assert warned["state"] == "warn"
    assert f"chmod 600 {tmp_path / 'agents.db-wal'}" in warned["detail"]
