"""A file system that is really full."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def can_mount() -> bool:
    """Return whether this user may mount a file system in its own namespace."""
    if shutil.which("unshare") is None:
        return False
    attempt = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(attempt, check=False, capture_output=True).returncode == 0


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """Every accepted message is stored, the others raise disk-full errors, and freed space is used."""
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-m", "tests.proof.faults.sqlite.small_disk", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.stdout == "True True True refused kept True\n", done.stdout + done.stderr
