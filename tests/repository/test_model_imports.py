from __future__ import annotations

import ast

from tests.backends import TESTS_FOLDER

MODEL = TESTS_FOLDER / "proof" / "model"


def test_the_model_decides_by_itself() -> None:
    """Nothing in tests/proof/model imports ``lash.plan``, whose decisions it checks."""
    files = sorted(MODEL.glob("*.py"))
    assert files
    imported = {(path.name, name) for path in files for name in _imports(ast.parse(path.read_text()))}
    assert not [pair for pair in imported if f"{pair[1]}.".startswith("lash.plan.")]


def test_an_import_of_the_plan_is_seen() -> None:
    """The check above finds every form of import."""
    for text in (
        "import lash.plan.queue.queue",
        "from lash.plan import queue",
        "from lash.plan.queue.queue import plan_claim",
    ):
        assert any(f"{name}.".startswith("lash.plan.") for name in _imports(ast.parse(text)))
    assert "lash.plan" in _imports(ast.parse("from lash import plan"))


def _imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return names
