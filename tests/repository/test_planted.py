"""The planted bugs are still there to be planted, and the runner tells a caught one from a missed one."""

import subprocess
from pathlib import Path

import pytest

from tools.planted import applies, command_of, patches, read_patch, try_patch

ROOT = Path(__file__).parents[2]
PATCHES = patches(ROOT)
HEADER = "Bug: two is three.\nCheck: tests/test_two.py\n\n"
DIFFERENCE = """\
diff --git a/src/two.py b/src/two.py
--- a/src/two.py
+++ b/src/two.py
@@ -1 +1 @@
-TWO = 2
+TWO = 3
"""
NOTICES = "from two import TWO\n\n\ndef test_two() -> None:\n    assert TWO == 2\n"
BLIND = "def test_two() -> None:\n    assert True\n"


def small_tree(root: Path, test: str, patch: str = HEADER + DIFFERENCE) -> Path:
    """Make a repository with one constant, one test and one planted bug; return the patch."""
    path = root / "tests/proof/planted/unit-two.patch"
    files = {root / "src/two.py": "TWO = 2\n", root / "tests/test_two.py": test, path: patch}
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return path


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_planted_bug_still_applies(path: Path) -> None:
    """Each file has its two lines and fits the tree as it is."""
    assert read_patch(path).paths
    assert applies(ROOT, path) is None


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_the_check_of_a_planted_bug_exists(path: Path) -> None:
    """A check that names a file of tests names one that is there."""
    files = [word.partition("::")[0] for word in read_patch(path).check.split() if word.startswith("tests/")]
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_the_documentation_lists_every_planted_bug() -> None:
    """The page has a row for each patch, with the bug and the check that its first lines name, and no other."""
    page = (ROOT / "docs/internals/proof/planted.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    planted = map(read_patch, PATCHES)
    assert rows == [f"| `{each.name}` | {each.bug.rstrip('.')} | `{each.check}` |" for each in planted]


@pytest.mark.parametrize(("test", "verdict"), [(NOTICES, "caught"), (BLIND, "missed"), ("", "broken")])
def test_only_a_failing_test_has_caught_a_bug(tmp_path: Path, test: str, verdict: str) -> None:
    """A test that passes missed it, and a file without tests proves nothing; the tree is left as it was."""
    path = small_tree(tmp_path, test)
    assert try_patch(tmp_path, path, seconds=60).verdict == verdict
    assert (tmp_path / "src/two.py").read_text(encoding="utf-8") == "TWO = 2\n"


def test_a_patch_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """The code has changed since: somebody must plant the bug anew."""
    path = small_tree(tmp_path, NOTICES, HEADER + DIFFERENCE.replace("-TWO = 2", "-TWO = 4"))
    assert try_patch(tmp_path, path, seconds=60).verdict == "does not apply"


@pytest.mark.parametrize(
    "text",
    [DIFFERENCE, "Bug: one.\n" + DIFFERENCE, HEADER + DIFFERENCE.replace("src/", "tests/"), HEADER],
    ids=["no header", "no check", "not in src", "no difference"],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str) -> None:
    """The message begins with the name of the file."""
    path = tmp_path / "unit-two.patch"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"unit-two\.patch: "):
        read_patch(path)


def test_a_check_may_be_a_command() -> None:
    """What begins like a command is one; all else goes to pytest."""
    assert command_of("python -m tools.check_repository") == ["bash", "-c", "python -m tools.check_repository"]
    assert command_of("LASH_X=1 python -m pytest tests/a.py")[:2] == ["bash", "-c"]
    assert command_of("tests/a.py::test_a -k 'b c'")[-3:] == ["tests/a.py::test_a", "-k", "b c"]
