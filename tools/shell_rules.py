"""Rules about ``rows/``: what both backends do alike is written once, in ``backend/``.

`equality` compares the code of ``postgres/rows/`` with that of ``sqlite/rows/``, line by line. Before the comparison,
``async``, ``await`` and the class prefixes are removed. Not counted, because they repeat what another place prescribes
or carry no decision: blank lines, comments, docstrings, imports, the headers of classes and functions (the port
prescribes them and mypy compares them), assignments of arguments in constructors, and lines with fewer than
`LEAST_LETTERS` letters, digits and underscores (``else:``, ``return None``, ``if row is None:``, closing brackets).
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from tools.repository import SOURCE, Finding, Repository

MOST_EQUAL: Final = 0.10
"""The share of the lines of ``postgres/rows/`` that may stand in ``sqlite/rows/`` too."""
LEAST_LETTERS: Final = 12
"""A line with fewer letters, digits and underscores is equal by chance."""

_SQLITE: Final = f"{SOURCE}/sqlite/rows"
_POSTGRES: Final = f"{SOURCE}/postgres/rows"
_DIFFERS: Final = re.compile(r"\b(?:async|await) |SQLite|Postgres(?:QL)?")
_FIELD: Final = re.compile(r"self\.\w+ = \w+")
_SHARED_PACKAGES: Final = ("lash.plan", "lash.base.limits")
_SHARED_PREFIXES: Final = ("check_", "plan_")


class Equality(msgspec.Struct, frozen=True):
    """How many lines of ``postgres/rows/`` were counted, and how many of them stand in ``sqlite/rows/``."""

    equal: int
    counted: int

    @property
    def share(self) -> float:
        return self.equal / self.counted if self.counted else 0.0

    def __str__(self) -> str:
        return f"{self.share:.1%} of the lines stand in sqlite/rows too ({self.equal} of {self.counted})"


def equality(repository: Repository) -> Equality:
    """Return how much of ``postgres/rows/`` repeats ``sqlite/rows/``; a line counts as often as both have it."""
    there = Counter(_lines(repository, _SQLITE))
    here = Counter(_lines(repository, _POSTGRES))
    return Equality((there & here).total(), here.total())


def shell_equality(repository: Repository) -> Iterator[Finding]:
    """Report the measured equality, whether or not it is too high."""
    measured = equality(repository)
    if measured.counted:
        yield Finding(_POSTGRES, 0, f"{measured}; at most {MOST_EQUAL:.0%} may")


def shells_are_written_once(repository: Repository) -> Iterator[Finding]:
    """Few lines are equal, and no argument check or plan function is called in both trees."""
    measured = equality(repository)
    if measured.share > MOST_EQUAL:
        yield Finding(_POSTGRES, 0, f"{measured}; move what both do to backend/")
    sqlite, postgres = _shared_calls(repository, _SQLITE), _shared_calls(repository, _POSTGRES)
    for name in sorted(sqlite.keys() & postgres.keys()):
        path, line = postgres[name]
        other, other_line = sqlite[name]
        yield Finding(path, line, f"{name} is called in {other}:{other_line} too; call it in backend/")


def rows_have_the_same_files(repository: Repository) -> Iterator[Finding]:
    """Both ``rows/`` have the same file names; a file of one backend only lies beside ``rows/``."""
    sqlite, postgres = _names(repository, _SQLITE), _names(repository, _POSTGRES)
    for directory, missing in ((_SQLITE, postgres - sqlite), (_POSTGRES, sqlite - postgres)):
        yield from (
            Finding(f"{directory}/{name}", 0, "only the other backend has this file") for name in sorted(missing)
        )


def _names(repository: Repository, directory: str) -> set[str]:
    return {repository.relative(path)[len(directory) + 1 :] for path in repository.files(directory, suffixes=(".py",))}


def _lines(repository: Repository, directory: str) -> Iterator[str]:
    for path in repository.files(directory, suffixes=(".py",)):
        text = path.read_text(encoding="utf-8")
        counted = _code_lines(ast.parse(text))
        for number, line in enumerate(text.splitlines(), start=1):
            plain = _DIFFERS.sub("", line.strip())
            if number in counted and not _is_trivial(plain):
                yield plain


def _is_trivial(line: str) -> bool:
    if line.startswith("#") or _FIELD.fullmatch(line):
        return True
    return len(re.findall(r"\w", line)) < LEAST_LETTERS


def _code_lines(module: ast.Module) -> set[int]:
    """Return the lines of statements, without imports, docstrings and the headers of classes and functions."""
    code: set[int] = set()
    other: set[int] = set()
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                other.update(range(first, node.body[0].lineno))
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                other.update(_span(node))
            case ast.stmt():
                code.update(_span(node))
            case _:
                pass
    return code - other


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _shared_calls(repository: Repository, directory: str) -> dict[str, tuple[str, int]]:
    """Return where the tree first calls each check and plan function, by its full name."""
    found: dict[str, tuple[str, int]] = {}
    for path, module in repository.modules(directory):
        imported = dict(_imported(module))
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
                found.setdefault(imported[node.func.id], (path, node.lineno))
    return found


def _imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(_SHARED_PACKAGES):
            for name in node.names:
                if name.name.startswith(_SHARED_PREFIXES):
                    yield name.asname or name.name, f"{node.module}.{name.name}"
