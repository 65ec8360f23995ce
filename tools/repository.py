"""The input of the repository's rules: a tree of files, its queries and its migrations."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from lash.sqlkit.migrations import Migration, read_migrations
from lash.sqlkit.queries import parse_queries, query_files

BACKENDS: Final = ("sqlite", "postgres")
SOURCE: Final = "src/lash"
KNOWN_DIFFERENCES: Final = "tests/known_differences.py"


class Finding(msgspec.Struct, frozen=True, order=True):
    """One place that breaks a rule. Line 0 stands for the file as a whole."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Query(msgspec.Struct, frozen=True):
    """One named query and where it stands."""

    name: str
    statement: str
    path: str
    line: int

    def finding(self, message: str) -> Finding:
        return Finding(self.path, self.line, f"query {self.name} {message}")


class Repository:
    """A tree with the layout of this one. Missing directories count as empty."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def sql_folder(self, backend: str) -> Path:
        return self.root / SOURCE / backend / "sql"

    def sql_paths(self, backend: str) -> list[Path]:
        """The query files of a backend; migrations are not among them."""
        directory = self.sql_folder(backend)
        return query_files(directory) if directory.is_dir() else []

    def queries(self, backend: str) -> list[Query]:
        """The queries of the files that can be read; `sql_rules.sql_is_well_formed` reports the others."""
        found: list[Query] = []
        for path in self.sql_paths(backend):
            try:
                found.extend(self.queries_of(path))
            except ValueError:
                continue
        return found

    def queries_of(self, path: Path) -> list[Query]:
        text = path.read_text(encoding="utf-8")
        lines = [number for number, line in enumerate(text.splitlines(), start=1) if line.startswith("-- name: ")]
        pairs = parse_queries(text)
        return [
            Query(name=name, statement=statement, path=self.relative(path), line=line)
            for (name, statement), line in zip(pairs, lines, strict=True)
        ]

    def migrations(self, backend: str) -> tuple[Migration, ...]:
        """The migrations of a backend; ValueError when their files are misnamed or misnumbered."""
        directory = self.sql_folder(backend) / "migrations"
        return read_migrations(directory) if directory.is_dir() else ()

    def files(self, *directories: str, suffixes: tuple[str, ...]) -> Iterator[Path]:
        """The files below the directories with one of the suffixes, by path, without hidden directories."""
        for directory in directories:
            for parent, children, names in os.walk(self.root / directory):
                children[:] = sorted(child for child in children if not child.startswith("."))
                paths = (Path(parent) / name for name in sorted(names))
                yield from (path for path in paths if path.suffix in suffixes)

    def modules(self, *directories: str) -> Iterator[tuple[str, ast.Module]]:
        """The parsed Python files below the directories, with their relative paths."""
        for path in self.files(*directories, suffixes=(".py",)):
            yield self.relative(path), ast.parse(path.read_text(encoding="utf-8"))


Rule: TypeAlias = Callable[[Repository], Iterator[Finding]]
