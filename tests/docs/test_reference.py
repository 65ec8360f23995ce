"""Names in the documentation exist, and everything public is documented."""

from __future__ import annotations

import ast
import inspect
import re
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

import lash
from lash import errors
from lash.stores.storage import Storage
from lash.stores.waiter import ProcessWaiter
from tests.docs.pages import DOCS, ROOT, blocks_of
from tools.reference_pages import errors_page, schema_page
from tools.repository import BACKENDS, Repository
from tools.value_pages import names_page, public_names, values_page

_PROOF = re.compile(r"`(?P<path>(?:tests|lash/testing)/[\w/]+\.py)::(?P<test>test_\w+)`")
_PATH = re.compile(r"(?P<root>storage|session|app)(?P<names>(?:\.\w+)+)")


def _text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


PROOFS = sorted({(match["path"], match["test"]) for match in _PROOF.finditer(_text("guarantees.md"))})


@pytest.mark.parametrize(("path", "test"), PROOFS)
def test_a_promise_names_a_test_that_exists(path: str, test: str) -> None:
    """A renamed or removed test is found."""
    file = ROOT / ("src" if path.startswith("lash/") else "") / path
    assert test in _functions(file)


def test_every_promise_has_a_proof() -> None:
    """Every row of the tables of guarantees names a test."""
    for line in _text("guarantees.md").splitlines():
        if line.startswith("| ") and not line.startswith("| promise"):
            assert _PROOF.search(line), line


def _resolves(root: str, names: list[str]) -> bool:
    """Follow attributes by their declared types, as far as they are stores."""
    found: object = {"storage": Storage, "session": lash.Session, "app": lash.App}[root]
    for name in names:
        if not hasattr(found, name):
            return False
        found = inspect.getattr_static(found, name)
        if isinstance(found, property) and found.fget is not None:
            kind = found.fget.__annotations__["return"]
            found = _store(kind) if isinstance(kind, str) else kind
    return True


def _store(name: str) -> object:
    return {"ProcessWaiter": ProcessWaiter}.get(name) or getattr(inspect.getmodule(Storage), name, None)


def _ours() -> list[str]:
    cells = [line.split("|")[2] for line in _text("reference/seeds.md").splitlines() if line.startswith("|")]
    return sorted({name for cell in cells for name in re.findall(r"`((?:storage|session|app)\.[\w.]+)", cell)})


@pytest.mark.parametrize("name", _ours())
def test_the_map_of_operations_names_ours(name: str) -> None:
    """The operations that the original's are mapped to exist."""
    match = _PATH.fullmatch(name)
    assert match is not None
    assert _resolves(match["root"], match["names"].strip(".").split("."))


def test_a_name_that_is_not_there_is_noticed() -> None:
    """The check above can fail."""
    assert not _resolves("storage", ["queue", "enqueued"])
    assert not _resolves("storage", ["queues"])


@pytest.mark.parametrize(
    "store", ["sessions", "leases", "queue", "attachments", "processes", "process_leases", "events", "grants"]
)
def test_the_map_leaves_out_no_operation_of_a_store(store: str) -> None:
    """Every operation of the stores that the original also has is on the page."""
    kind = _store(inspect.getattr_static(Storage, store).fget.__annotations__["return"])
    operations = [name for name in vars(kind) if not name.startswith("_")]
    named = _ours()
    assert [name for name in operations if f"storage.{store}.{name}" not in named] == []


def test_every_error_is_explained() -> None:
    """Each error class has a heading, its docstring and one advice."""
    page = errors_page()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LashError)]
    assert len(kinds) > 40
    for kind in kinds:
        section = page.partition(f"\n## {kind.__name__}\n")[2].partition("\n## ")[0]
        assert inspect.cleandoc(kind.__doc__ or "?") in section
        assert len(re.findall(r"^\*\*(?:Retry|Decide again|Stop|Fix)\*\*", section, re.MULTILINE)) == 1


def test_every_table_says_what_it_is_for() -> None:
    """Each table of each backend has a section with its comment, which names its owner."""
    page = schema_page(ROOT)
    for backend in BACKENDS:
        statements = "\n".join(migration.statement for migration in Repository(ROOT).migrations(backend))
        # The index of words is not a table of lash.
        tables = re.findall(r'CREATE (?:UNLOGGED )?TABLE (?::"schema"\.)?(lash_\w+)', statements)
        assert len(tables) > 30
        for table in tables:
            section = page.partition(f"\n## {table}\n")[2].partition("\n## ")[0]
            assert "Owner:" in section
            assert "| column |" in section


def test_every_value_has_its_fields() -> None:
    """A struct is shown with its fields, an enumeration with its members."""
    page = values_page()
    section = page.partition("\n### DeliveryState\n")[2].partition("\n###")[0]
    assert "`DeliveryState.STARTED` Its process is registered." in section
    assert "| `reason` | `str \\| None` | `None` |" in page.partition("\n### TriggerDelivery\n")[2]


@pytest.mark.parametrize(
    ("page", "states"),
    [
        ("concepts/process.md", lash.ProcessStatus),
        ("concepts/claim.md", lash.model.BatchState),
        ("concepts/effect.md", lash.model.EffectStatus),
        ("concepts/delivery.md", lash.model.DeliveryState),
    ],
)
def test_diagrams_show_every_state(page: str, states: type[StrEnum]) -> None:
    """Every state in the code is in the diagram of its page."""
    diagrams = "\n".join(block.body for block in blocks_of(_text(page)) if block.language == "mermaid")
    assert [state.value for state in states if not re.search(rf"\b{state.value}\b", diagrams)] == []


def test_every_moment_that_hooks_hear_of_is_explained() -> None:
    """The table and the docstring of hooks list exactly the events that the runtime notes."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/lash/runtime").rglob("*.py"))
    noted = set(re.findall(r'\bnote\(\s*"([a-z]+\.[a-z]+)"', sources))
    table = re.findall(r"^\| (`[a-z]+\.[a-z]+`(?:, `[a-z]+\.[a-z]+`)*) \|", _text("operations.md"), re.MULTILINE)
    assert {name for cell in table for name in re.findall(r"`([a-z.]+)`", cell)} == noted
    assert set(re.findall(r"``([a-z]+\.[a-z]+)``", lash.Hook.note.__doc__ or "")) == noted


def test_moments_on_which_to_act_are_logged_as_warnings() -> None:
    """Events that the table marks as ordinary are not logged as warnings or errors."""
    rows = re.findall(r"^\| (`[a-z]+\.[a-z]+`.*?) \| .* \| (.*) \|$", _text("operations.md"), re.MULTILINE)
    loud = {name for cell, act in rows if act != "never" for name in re.findall(r"`([a-z.]+)`", cell)}
    assert loud - {"lease.reclaimed"} == lash.LoggingHook._LOUD | lash.LoggingHook._FAILED.keys()


def test_every_exported_name_is_explained() -> None:
    """The page of names has each of them, with a link; the build of the site checks the links."""
    sections = names_page().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == ["lash", "lash.model", "lash.stores"]
    for section, module in zip(sections, (lash, lash.model, lash.stores), strict=True):
        listed = re.findall(r"^\| \[`(\w+)`\]", section, re.MULTILINE)
        assert sorted(listed) == sorted(public_names(module))
