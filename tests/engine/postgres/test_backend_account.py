"""The account of backends at the end of a test run, and the rule that CI must have seen PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import TESTS_FOLDER, with_parameters

pytestmark = pytest.mark.proof

SUITE = """
import pytest

def test_on_each(backend_name: str) -> None:
    assert backend_name != "memory"

@pytest.fixture
def broken() -> None:
    raise RuntimeError

def test_broken_setup(backend_name: str, broken: None) -> None:
    pass

def test_skipped(backend_name: str) -> None:
    pytest.skip("not counted")
"""
WITHOUT_POSTGRES = "def test_nothing() -> None:\n    pass\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "proof").mkdir()
    for name in ("conftest.py", "backends.py", "s3_server.py", "proof/selection.py"):
        shutil.copy(TESTS_FOLDER / name, tests / name)
    (tmp_path / "tools").mkdir()
    shutil.copy(TESTS_FOLDER.parent / "tools/rotation.py", tmp_path / "tools")
    (tmp_path / "docs").mkdir()
    shutil.copy(TESTS_FOLDER.parent / "docs/guarantees.md", tmp_path / "docs")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\npythonpath = .\naddopts = --import-mode=importlib\n"
    )
    return tmp_path


def run_pytest(project: Path, *arguments: str, ci: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=project,
        env=environment | {"CI": ci},
        timeout=60,
    )
    return done.returncode, done.stdout


def test_each_backend_has_a_line_with_its_numbers(project: Path) -> None:
    """Failures in any phase count as run and failed, skipped tests as not run."""
    (project / "tests" / "test_suite.py").write_text(SUITE)
    _, output = run_pytest(project, ci="false")
    lines = [line for line in output.splitlines() if line.startswith("backend ")]
    assert lines == [
        "backend sqlite: 2 tests ran, 1 passed, 1 failed",
        "backend memory: 2 tests ran, 0 passed, 2 failed",
        "backend postgres: 2 tests ran, 1 passed, 1 failed",
    ]


def test_a_backends_own_folder_counts_and_the_option_narrows(project: Path) -> None:
    """Tests below ``tests/engine/sqlite`` belong to sqlite, and ``--backend`` leaves out those of the others."""
    (project / "tests" / "engine" / "sqlite").mkdir(parents=True)
    (project / "tests" / "engine" / "sqlite" / "test_own.py").write_text(WITHOUT_POSTGRES)
    (project / "tests" / "test_suite.py").write_text("def test_each(backend_name: str) -> None:\n    pass\n")
    status, output = run_pytest(project, "--backend", "sqlite", ci="true")
    assert status == 0
    assert "backend sqlite: 2 tests ran, 2 passed" in output
    assert "backend memory: 0 tests ran, 0 passed" in output
    assert "backend postgres: 0 tests ran, 0 passed" in output


@pytest.mark.parametrize(
    ("arguments", "ci", "status"),
    [
        ((), "false", 0),
        ((), "true", 1),
        (("tests",), "true", 1),
        (("tests/test_suite.py",), "true", 0),
        (("-k", "nothing"), "true", 0),
    ],
)
def test_a_whole_run_without_postgres_fails_in_ci_only(
    project: Path, arguments: tuple[str, ...], ci: str, status: int
) -> None:
    """A green run without PostgreSQL fails in CI; a run narrowed on purpose does not."""
    (project / "tests" / "test_suite.py").write_text(WITHOUT_POSTGRES)
    assert run_pytest(project, *arguments, ci=ci)[0] == status


def test_a_parameter_is_added_to_a_url_with_or_without_others() -> None:
    """The helper that names a test's schema keeps the rest of the URL."""
    assert with_parameters("postgresql://h/d", schema="s") == "postgresql://h/d?schema=s"
    assert with_parameters("postgresql://h/d?a=1", schema="s") == "postgresql://h/d?a=1&schema=s"
