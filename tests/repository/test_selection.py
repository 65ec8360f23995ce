"""``make test`` and ``make proof`` together run every test, and ``make test`` runs every guarantee."""

import re
from pathlib import Path

import pytest

from tests.proof.selection import (
    DIRECTORY,
    FIRST,
    IN_TEST,
    LONG,
    MAKE_PROOF,
    MAKE_TEST,
    ROTATED,
    SAMPLED,
    has_none,
    is_left_to_proof,
    mark_of,
)
from tools.rotation import VARIABLE, part_of, turn_of

ROOT = Path(__file__).parents[2]


def test_make_test_runs_every_guarantee() -> None:
    """A test that docs/guarantees.md names is not left to ``make proof``, whole or in a short form."""
    page = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)::", page))
    assert len(named) > 30
    assert sorted(name for name in named if mark_of(ROOT / name) == "proof") == []


def test_the_selection_names_what_exists() -> None:
    """A renamed file would silently move to ``make proof``."""
    assert [name for name in (*IN_TEST, *SAMPLED) if not (DIRECTORY / name).exists()] == []
    assert [name for name in (*FIRST, *ROTATED) if not (ROOT / name).exists()] == []
    for name in LONG:
        file, _, function = name.partition("::")
        function = function.rpartition("::")[2]
        assert (ROOT / file).exists()
        assert not function or f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")


def test_a_long_test_that_a_guarantee_names_stays() -> None:
    """Both databases keep it; SQLite in memory does not, nor the rest of its file."""
    kept = "tests/cli/test_unicode.py::test_json_is_valid_in_every_encoding"
    assert not is_left_to_proof(f"{kept}[postgres]", "postgres")
    assert not is_left_to_proof(f"{kept}[sqlite]", "sqlite")
    assert is_left_to_proof("tests/cli/test_output.py::test_lists_say_when_there_is_more[postgres]", "postgres")
    assert is_left_to_proof("tests/runtime/test_demo.py::test_every_claim_is_true[sqlite]", "sqlite")
    assert is_left_to_proof("tests/contract/test_lease.py::TestLease::test_anything[memory]", "memory")


def test_the_two_commands_leave_nothing_out() -> None:
    """Tests have no mark, ``proof`` or ``sampled``: the first and the last are in one command, the last in both."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^\t\$\(PYTEST\) -m \"(.*?)\"", makefile, re.MULTILINE) == [MAKE_TEST, MAKE_PROOF]


def test_files_that_are_not_loaded_have_nothing_to_run() -> None:
    """``make test`` loads a long file of which a guarantee names a test, and ``make proof`` no pure tests."""
    assert has_none(ROOT / "tests/proof/model/test_queue.py", MAKE_TEST)
    assert has_none(ROOT / "tests/cli/test_backup.py", MAKE_TEST)
    assert not has_none(ROOT / "tests/cli/test_unicode.py", MAKE_TEST)
    assert not has_none(ROOT / "tests/proof/contention/test_contention.py", MAKE_TEST)
    assert not has_none(ROOT / "tests/proof/model/test_queue.py", "")
    assert not has_none(ROOT / "tests/proof/model/test_queue.py", MAKE_PROOF)
    assert has_none(ROOT / "tests/rules/test_lease.py", MAKE_PROOF)
    marks = re.compile(r"mark\.(proof|sampled)")
    assert [file.name for file in (ROOT / "tests/rules").glob("*.py") if marks.search(file.read_text())] == []
    assert not any(name.startswith("tests/rules/") for name in LONG)


def test_successive_turns_run_every_part() -> None:
    """As many turns as there are parts run each test once; without a turn everything runs."""
    names = [f"test {number}" for number in range(11)]
    assert sorted(name for turn in range(100, 104) for name in part_of(names, turn, 4)) == sorted(names)
    assert part_of(names, None, 4) == names


def test_the_part_follows_from_the_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that is repeated has the same part; a number picks one, and without the variable everything runs."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert turn_of() is None
    monkeypatch.setenv(VARIABLE, "7")
    assert turn_of() == 7
    monkeypatch.setenv(VARIABLE, "commit")
    assert turn_of() == turn_of()
    assert turn_of(tmp_path) == 0
