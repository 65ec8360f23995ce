"""The public names: one list for each facade, consistent with what type checkers see."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lash
from tests.backends import TESTS_FOLDER

SOURCE = TESTS_FOLDER.parent / "src" / "lash"


def exports(body: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    """Return the names that a block of imports and assignments exports, each with its module and original name."""
    imported = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    renamed = {
        ast.unparse(node.targets[0]): imported.pop(ast.unparse(node.value))
        for node in body
        if isinstance(node, ast.Assign)
    }
    return imported | renamed


def defined_values() -> set[str]:
    """Return the public classes below ``lash/model``."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (SOURCE / "model").rglob("*.py")]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return {name for name in classes if not name.startswith("_")}


def test_type_checkers_see_the_names_of_lash() -> None:
    """The block for type checkers and the lazy table have the same names, from the same modules."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    [choice] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = exports(choice.body)
    homes, renamed, submodules = vars(lash)["_HOMES"], vars(lash)["_RENAMED"], vars(lash)["_SUBMODULES"]
    table = {name: (module, renamed.get(name, name)) for name, module in homes.items()}
    assert seen == table | {name: ("lash", name) for name in submodules}
    assert sorted(vars(lash)["__all__"]) == sorted([*seen, "__version__"])


@pytest.mark.parametrize("name", sorted(vars(lash)["__all__"]))
def test_every_name_of_lash_is_there(name: str) -> None:
    """Each name of the table is found where the table says."""
    assert getattr(lash, name) is not None


def test_the_facade_is_for_users() -> None:
    """``lash`` stays small: what few programs need is in ``lash.model``, ``lash.stores`` and ``lash.errors``."""
    assert len(dir(lash)) <= 105


def test_every_value_is_public() -> None:
    """A class of ``lash.model`` that has no underscore is exported; the bases of all values are not."""
    assert defined_values() - set(dir(lash.model)) == {"Value", "ClosedValue"}


@pytest.mark.parametrize("facade", ["lash", "lash.model", "lash.stores"])
def test_an_unknown_name_is_refused(facade: str) -> None:
    """An unknown name raises AttributeError; special names load nothing."""
    module = sys.modules.get(facade) or getattr(lash, facade.rpartition(".")[2])
    with pytest.raises(AttributeError, match=f"module '{facade}' has no attribute 'Commmit'"):
        _ = module.Commmit


def test_mypy_knows_the_names(tmp_path: Path) -> None:
    """Under strict rules a program may use every facade, and a misspelt name is an error."""
    program = tmp_path / "program.py"
    program.write_text(
        "import lash\nfrom lash.model import Commit\nfrom lash.stores import QueueStore\n"
        "known = (lash.App, lash.open, lash.model.Batch, lash.errors.ClaimLost, Commit, QueueStore)\n"
        "wrong = (lash.Ap, lash.model.Bach, lash.stores.Queue)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(program)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS_FOLDER.parent)
    errors = [line.partition("error: ")[2] for line in ended.stdout.splitlines() if "error:" in line]
    assert len(errors) == 3, ended.stdout
    assert all("no attribute" in error for error in errors), ended.stdout
