"""``make test`` and ``make proof`` together run every test, and ``make test`` runs every guarantee."""

import re
from pathlib import Path

from tests.proof.selection import DIRECTORY, IN_TEST, SAMPLED, mark_of

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


def test_the_two_commands_leave_nothing_out() -> None:
    """Tests have no mark, ``proof`` or ``sampled``: the first and the last are in one command, the last in both."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^\t\$\(PYTEST\) -m (\".*?\")", makefile, re.MULTILINE) == ['"not proof"', '"proof or sampled"']
