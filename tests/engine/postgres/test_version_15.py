"""The contract of every store on the oldest supported server; all other tests run on the newest one."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from lash.testing.postgres_server import BINARIES_VARIABLE, URL_VARIABLE, find_binaries
from tests.backends import TESTS_FOLDER
from tests.postgres_15 import find_postgres_15
from tests.proof.selection import ROTATED

PARTS: Final = ROTATED["tests/engine/postgres/test_version_15.py"]
FILES: Final = sorted(str(path) for path in (TESTS_FOLDER / "contract").glob("test_*.py"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_contract_holds_on_version_15(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of the suite passes; CI runs one of them for each commit."""
    binaries = find_postgres_15()
    version = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    assert version.split()[2].startswith("15.")
    monkeypatch.setenv(BINARIES_VARIABLE, str(binaries))
    assert find_binaries() == binaries
    given = {name: value for name, value in os.environ.items() if name != URL_VARIABLE and "PYTEST" not in name}
    chosen = ["-m", "not proof", "--backend", "postgres", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    command = [sys.executable, "-m", "pytest", *chosen, *FILES[part::PARTS]]
    done = subprocess.run(command, cwd=TESTS_FOLDER.parent, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr
    assert "backend postgres: 0 tests" not in done.stdout
