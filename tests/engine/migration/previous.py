"""The version of lash before this one, from the history of this repository.

`COMMIT` is the last release; until there is one, it is the first commit with the last migration that is not additive.
Move it with each release, and whenever a migration is not additive: the version before then stops, by design.

A clone without that commit (a shallow one, or a tree without git) cannot run the old code. There the tests are skipped,
and fail with ``CI=true``: ``git fetch --unshallow`` brings the history.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT

COMMIT: Final = "483f8e2dfb45713dad6951f34f5654356afb440a"
_UNUSED: Final = ("adapters", "demo", "web")
"""What a worker does not import."""


def unpack_previous(folder: Path) -> Path:
    """Write the previous version into a directory, and return the path to import it from."""
    command = ["git", "archive", COMMIT, "src/lash", *(f":!src/lash/{part}" for part in _UNUSED)]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        reason = f"the history has no commit {COMMIT[:12]}; fetch it with: git fetch --unshallow"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"
