"""The version of lash before this one, from the history of this repository.

It is the commit with the last migration that is not additive: workers of older versions stop there, by design. The
commit is found by the file of that migration, because a history that was rebased or squashed has other ids.

A clone without that commit (a shallow one, or a tree without git) cannot run the old code. There the tests are skipped,
and fail with ``CI=true``: ``git fetch --unshallow`` brings the history.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.docs.pages import ROOT

_MIGRATIONS: Final = ROOT / "src/lash/sqlite/sql/migrations"
_UNUSED: Final = ("adapters", "demo", "web")
"""What a worker does not import."""


def last_breaking() -> Path:
    """Return the file of the last migration that is not additive."""
    return max(path for path in _MIGRATIONS.glob("*.sql") if not path.read_text().startswith("-- additive:"))


def unpack_previous(folder: Path) -> Path:
    """Write the previous version into a directory, and return the path to import it from."""
    commit = _git("log", "-1", "--format=%H", "--", str(last_breaking())).decode().strip()
    if not commit:
        _give_up(f"the history has no commit with {last_breaking().name}; commit it, or fetch: git fetch --unshallow")
    packed = _git("archive", commit, "src/lash", *(f":!src/lash/{part}" for part in _UNUSED))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _git(*words: str) -> bytes:
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    if ran.returncode:
        _give_up(f"git {words[0]} failed: {ran.stderr.decode().strip()}")
    return ran.stdout


def _give_up(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
