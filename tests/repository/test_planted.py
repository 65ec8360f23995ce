"""The planted bugs fit the tree, and the runner distinguishes a caught bug from a missed one."""

import subprocess
from pathlib import Path

import pytest

from tools.planted import (
    DoesNotApply,
    Planted,
    command_of,
    edited,
    kind_of,
    main,
    one_of_each_kind,
    read_bug,
    read_bugs,
    red_checks,
    try_bug,
)

ROOT = Path(__file__).parents[2]
BUGS = read_bugs(ROOT)
TWO = """\
bug = "Two is three."
check = "tests/test_two.py"

[[edit]]
file = "src/two.py"
find = "TWO = 2"
replace = "TWO = 3"
"""
NOTICES = "from two import TWO\n\n\ndef test_two() -> None:\n    assert TWO == 2\n"
BLIND = "def test_two() -> None:\n    assert True\n"
RED = "def test_two() -> None:\n    raise AssertionError\n"


def small_tree(root: Path, test: str, text: str = TWO) -> Planted:
    """Make a repository with one constant, one test and one planted bug; return the bug."""
    path = root / "tests/proof/planted/unit-two.toml"
    files = {root / "src/two.py": "TWO = 2\n", root / "tests/test_two.py": test, path: text}
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return read_bug(path)


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_a_planted_bug_still_applies(planted: Planted) -> None:
    """Each text to find occurs exactly once, and each file changes."""
    for name, text in edited(ROOT, planted).items():
        assert text != (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_the_check_of_a_planted_bug_exists(planted: Planted) -> None:
    """Each file of tests that a check names exists."""
    words = planted.check.replace("'", "").split()
    files = [word.partition("::")[0] for word in words if word.startswith("tests/")]
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_the_documentation_lists_every_planted_bug() -> None:
    """The page has one row for each file, with its bug and its check, and no others."""
    page = (ROOT / "docs/internals/proof/planted.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{each.name}` | {each.bug.rstrip('.')} | `{each.check}` |" for each in BUGS]


@pytest.mark.parametrize(("test", "verdict"), [(NOTICES, "caught"), (BLIND, "missed"), ("", "broken")])
def test_only_a_failing_test_has_caught_a_bug(tmp_path: Path, test: str, verdict: str) -> None:
    """A test that passes missed the bug, and a file without tests proves nothing; the tree is left unchanged."""
    planted = small_tree(tmp_path, test)
    assert try_bug(tmp_path, planted, seconds=60).verdict == verdict
    assert (tmp_path / "src/two.py").read_text(encoding="utf-8") == "TWO = 2\n"


def test_a_check_that_fails_without_the_bug_has_caught_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--verify-checks`` each distinct check first runs on the tree without a bug."""
    planted = small_tree(tmp_path, RED)
    assert red_checks(tmp_path, [planted], seconds=60).keys() == {planted.check}
    monkeypatch.chdir(tmp_path)
    assert main(["--verify-checks"]) == 1
    assert "red anyway" in capsys.readouterr().out


def test_a_text_that_is_gone_does_not_apply(tmp_path: Path) -> None:
    """The code has changed since: the bug must be planted again."""
    planted = small_tree(tmp_path, NOTICES, TWO.replace("TWO = 2", "TWO = 4"))
    assert try_bug(tmp_path, planted, seconds=60).verdict == "does not apply"


def test_an_ambiguous_text_does_not_apply(tmp_path: Path) -> None:
    """A text that occurs twice is refused, as is a file that does not exist."""
    planted = small_tree(tmp_path, NOTICES)
    (tmp_path / "src/two.py").write_text("TWO = 2\nALSO_TWO = 2\n", encoding="utf-8")
    with pytest.raises(DoesNotApply, match="found it 2 times"):
        edited(tmp_path, planted)
    (tmp_path / "src/two.py").unlink()
    with pytest.raises(DoesNotApply, match="does not exist"):
        edited(tmp_path, planted)


@pytest.mark.parametrize(
    "text",
    [
        TWO.partition("[[edit]]")[0],
        TWO.replace("bug =", "bog ="),
        TWO.replace('check = "tests/test_two.py"\n', ""),
        TWO.replace("src/", "tests/"),
        TWO.replace('find = "TWO = 2"', 'find = ""'),
        "bug: one",
    ],
    ids=["no edit", "unknown key", "no check", "not in src", "nothing to find", "not TOML"],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str) -> None:
    """The message begins with the name of the file."""
    path = tmp_path / "unit-two.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"unit-two\.toml: "):
        read_bug(path)


def test_a_sample_has_one_bug_of_each_kind_of_check() -> None:
    """The sample is the first of each kind, in order; a kind is a directory of tests, or another command."""
    sample = one_of_each_kind(BUGS)
    kinds = [kind_of(each.check) for each in sample]
    assert sorted(kinds) == sorted({kind_of(each.check) for each in BUGS})
    assert {"tests/contract", "tests/engine", "tests/proof/model", "tests/proof/sweep"} <= set(kinds)
    assert [each.name for each in sample] == sorted(
        min(each.name for each in BUGS if kind_of(each.check) == kind) for kind in kinds
    )
    assert kind_of("LASH_X=1 python -m pytest 'tests/proof/sweep/test_a.py::test_b[c]'") == "tests/proof/sweep"
    assert kind_of("python -m tools.mutation model/scope") == "python -m tools.mutation model/scope"


def test_a_check_may_be_a_command() -> None:
    """A check that begins like a command is run by the shell; all else goes to pytest."""
    assert command_of("python -m tools.check_repository") == ["bash", "-c", "python -m tools.check_repository"]
    assert command_of("LASH_X=1 python -m pytest tests/a.py")[:2] == ["bash", "-c"]
    assert command_of("tests/a.py::test_a -k 'b c'")[-3:] == ["tests/a.py::test_a", "-k", "b c"]
