"""The command ``lash worker``: its messages for wrong calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lash.cli.main import main


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with modules, from which the command is called."""
    (tmp_path / "lash_test_shop.py").write_text(
        "import lash\nagents = lash.App('sqlite://')\nnumber = 7\nbad = lash.App('nonsense://x')\n"
    )
    (tmp_path / "lash_test_broken.py").write_text("1 / 0\n")
    (tmp_path / "lash_test_needy.py").write_text("import lash_test_not_installed\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("lash_test_nowhere:app", "unknown module 'lash_test_nowhere'"),
        ("lash_test_shop.inner:app", "unknown module 'lash_test_shop.inner'"),
        ("lash_test_shop", "has no 'app'; it has agents, bad"),
        ("lash_test_shop:nothing", "has no 'nothing'; it has agents, bad"),
        ("lash_test_shop:number", "of type int, not a lash.App"),
        ("lash_test_broken:app", "cannot be imported: ZeroDivisionError"),
        ("lash_test_needy:app", "needs 'lash_test_not_installed', which is not installed"),
        (":app", "expected module:name"),
    ],
)
def test_a_wrong_target_is_told_from_a_missing_one(
    place: Path, capsys: pytest.CaptureFixture[str], target: str, complaint: str
) -> None:
    """An error in the name is one line on standard error, with exit code 2."""
    assert main(["worker", target]) == 2
    written = capsys.readouterr()
    assert complaint in written.err
    assert written.out == ""


def test_a_storage_that_cannot_be_opened_is_an_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A storage that cannot be opened ends with exit code 1 and the reason, without a traceback."""
    assert main(["worker", "lash_test_shop:bad"]) == 1
    complaint = capsys.readouterr().err
    assert "nonsense" in complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize("wrong", [["--sessions", "-1"], ["--processes", "x"], ["--grace", "nan"], ["--grace", "-1"]])
def test_wrong_numbers_are_refused(capsys: pytest.CaptureFixture[str], wrong: list[str]) -> None:
    """Limits are whole numbers from 0 on, times are not negative."""
    assert main(["worker", "module:app", *wrong]) == 2
    complaint = capsys.readouterr().err
    assert wrong[0] in complaint
    assert wrong[1] in complaint


def test_help_is_there_without_loading_anything() -> None:
    """``python -m lash`` shows its help without importing asyncio, which would double its start time."""
    program = "import sys, lash.cli.main as m\ntry: m.main(['worker', '--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "MODULE:APP" in done.stdout
    assert "asyncio" not in done.stdout.split()
    helped = subprocess.run([sys.executable, "-m", "lash", "--help"], check=True, capture_output=True, text=True)
    assert "worker" in helped.stdout
