"""The pure tests notice small changes of `lash.plan`: a fixed sample here, all of them in ``make mutation``."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tools.mutants import mutants, mutated
from tools.mutation import accepted, module_files, module_name

ROOT = Path(__file__).parents[3]
SAMPLE = Path(__file__).with_name("sample.json")
MODULE = """\
LIMIT = 7


def rule(a: int, b: int, *, kind: str = "x") -> int | None:
    \"\"\"Say something.\"\"\"
    if a < b and not kind:
        raise ValueError("a text")
    return a + 1 if kind == "x" else None
"""


@pytest.mark.timeout(600)
def test_the_sample_is_killed() -> None:
    """Fifteen mutants, each of another module, and one that cannot be imported: each is noticed."""
    command = [sys.executable, "-m", "tools.mutation", "--keys", str(SAMPLE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 mutants, 16 killed" in done.stdout


def test_accepted_survivors_exist_and_have_a_reason() -> None:
    """The list names existing mutants and says why no test can notice them; the sample has none of them."""
    known = accepted()
    existing = {mutant.key for path in module_files([]) for mutant in mutants(path, f"plan/{module_name(path)}")}
    assert sorted(known.keys() - existing) == []
    assert [key for key, reason in known.items() if len(reason) < 20] == []
    assert known.keys().isdisjoint(msgspec.json.decode(SAMPLE.read_bytes(), type=list[str]))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def test_every_kind_of_change_is_made_once(module: Path) -> None:
    """Comparison, logic, arithmetic, constants, branches, raising and returning; neither the limit nor the texts."""
    assert [mutant.key for mutant in mutants(module, "m")] == [
        "m:rule 'x' -> 'xx'",
        "m:rule a < b and (not kind) -> a < b or not kind",
        "m:rule a < b and (not kind) -> not kind",
        "m:rule a < b and (not kind) -> a < b",
        "m:rule a < b -> a <= b",
        "m:rule not kind -> kind",
        "m:rule raise ValueError('a text') -> nothing",
        "m:rule return a + 1 if kind == 'x' else None -> return None",
        "m:rule a + 1 if kind == 'x' else None -> a + 1",
        "m:rule a + 1 if kind == 'x' else None -> None",
        "m:rule kind == 'x' -> kind != 'x'",
        "m:rule 'x' -> 'xx' (2)",
        "m:rule a + 1 -> a - 1",
        "m:rule 1 -> 2",
        "m:rule 1 -> 0",
    ]


def test_a_mutant_is_the_module_with_one_change(module: Path) -> None:
    """All else stays as it is, and every mutant can be compiled."""
    original = ast.unparse(ast.parse(MODULE))
    for mutant in mutants(module, "m"):
        text = ast.unparse(mutated(module, mutant))
        assert text != original
        assert len(set(text.splitlines()) - set(original.splitlines())) == 1
        compile(text, "m.py", "exec")


def test_a_guard_that_is_taken_away_leaves_the_cases_behind_it(tmp_path: Path) -> None:
    """A pattern that fits everything is no error without its guard: it is taken always."""
    path = tmp_path / "m.py"
    path.write_text(
        "match place:\n    case _ if held:\n        free = 1\n    case _:\n        free = 2\n", encoding="utf-8"
    )
    every = mutants(path, "m")
    assert "m: case _ if held: -> case _ if True:" in [mutant.key for mutant in every]
    for mutant in every:
        compile(mutated(path, mutant), "m.py", "exec")
