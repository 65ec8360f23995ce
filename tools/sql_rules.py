"""Rules about named queries: well formed, explained, used, and the same on both backends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lash.sqlkit.migrations import Migration
from tools.repository import BACKENDS, KNOWN_DIFFERENCES, SOURCE, Finding, Query, Repository

SHARED = f"{SOURCE}/backend"
"""Where the part of each store that both backends share may name queries."""

_PURPOSE = re.compile(r"--[ \t]*\w")
_QUERY_NAME = re.compile(r"[a-z][a-z0-9_]*")
_QUERY_METHODS = frozenset(
    {"one", "all", "run", "run_many", "read_one", "read_all", "write_one", "write_all", "write_under_locks"}
)
_NAME_POSITIONS = 2
"""The engines' methods take the name first, or second after the shape of a row."""
_COMMENT = re.compile(r"--[^\n]*")
_BODY = re.compile(r"\$\$.*?\$\$", re.DOTALL)
_ADDS = re.compile(
    r"CREATE (?:TABLE|VIRTUAL TABLE|VIEW|INDEX|FUNCTION) "
    r"|ALTER TABLE \S+ ADD COLUMN (?![^,]*\bNOT NULL\b(?![^,]*\bDEFAULT\b))[^,]*$"
)
"""What code of an earlier version does not notice. A statement adds one column, which is optional or has a default."""


def sql_is_well_formed(repository: Repository) -> Iterator[Finding]:
    """Every query file and every migration can be read, and no query name is defined twice in a backend."""
    for backend in BACKENDS:
        first: dict[str, Query] = {}
        for path in repository.sql_paths(backend):
            try:
                queries = repository.queries_of(path)
            except ValueError as error:
                yield Finding(repository.relative(path), 0, str(error))
                continue
            for query in queries:
                earlier = first.setdefault(query.name, query)
                if earlier is not query:
                    yield query.finding(f"is already defined at {earlier.path}:{earlier.line}")
        try:
            repository.migrations(backend)
        except ValueError as error:
            yield Finding(repository.relative(repository.sql_folder(backend) / "migrations"), 0, str(error))


def additive_migrations_add(repository: Repository) -> Iterator[Finding]:
    """An additive migration only adds relations and columns that older code can leave out, and the same on both."""
    for backend in BACKENDS:
        folder = repository.relative(repository.sql_folder(backend) / "migrations")
        for migration in _migrations(repository, backend):
            if not migration.is_additive:
                continue
            place = f"{folder}/{migration.number:04}_{migration.name}.sql"
            for statement in _BODY.sub("", _COMMENT.sub("", migration.statement)).split(";"):
                words = " ".join(statement.split())
                if words and not _ADDS.match(words):
                    yield Finding(
                        place, 0, f"is additive and has {words[:60]!r}: older code may depend on the opposite"
                    )
    both = [{each.number for each in _migrations(repository, backend) if each.is_additive} for backend in BACKENDS]
    for number in sorted(both[0] ^ both[1]):
        yield Finding(
            repository.relative(repository.sql_folder("sqlite")), 0, f"{number:04} is additive on one backend"
        )


def queries_say_their_purpose(repository: Repository) -> Iterator[Finding]:
    """The line below a query's name is a comment that says what it is for."""
    for backend in BACKENDS:
        for query in repository.queries(backend):
            if not _PURPOSE.match(query.statement):
                yield query.finding("has no comment below its name that says what it is for")


def backends_agree(repository: Repository) -> Iterator[Finding]:
    """Both backends have the same query names and migration numbers, but for the known differences."""
    known = known_differences(repository)
    names = {backend: _names(repository, backend) for backend in BACKENDS}
    different = names["sqlite"] ^ names["postgres"]
    for name in sorted(different - known.keys()):
        owner, other = ("sqlite", "postgres") if name in names["sqlite"] else ("postgres", "sqlite")
        path = repository.relative(repository.sql_folder(other))
        yield Finding(path, 0, f"{name} exists on {owner} only; add it, or say why in {KNOWN_DIFFERENCES}")
    for name, reason in known.items():
        if name not in different:
            yield Finding(KNOWN_DIFFERENCES, 0, f"{name} is no difference (any more); remove the entry")
        if not reason.strip():
            yield Finding(KNOWN_DIFFERENCES, 0, f"{name} has no reason")


def queries_are_used_and_exist(repository: Repository) -> Iterator[Finding]:
    """Every query is named in its backend's package or in backend/; every name passed to the engine is a query."""
    for backend in BACKENDS:
        queries = repository.queries(backend)
        names = {query.name for query in queries}
        mentioned = {text for _, module in repository.modules(SHARED) for text in _texts(module)}
        for path, module in repository.modules(f"{SOURCE}/{backend}"):
            mentioned.update(_texts(module))
            for line, name in _names_asked_for(module):
                if name not in names:
                    yield Finding(path, line, f"{backend} has no query {name}")
        for query in queries:
            if query.name not in mentioned:
                yield query.finding("is never used")


def known_differences(repository: Repository) -> dict[str, str]:
    """The literal value of ``QUERY_DIFFERENCES``; empty when the file does not exist."""
    path = repository.root / KNOWN_DIFFERENCES
    if not path.is_file():
        return {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "QUERY_DIFFERENCES":
            assert statement.value is not None
            return {str(name): str(reason) for name, reason in ast.literal_eval(statement.value).items()}
    return {}


def _migrations(repository: Repository, backend: str) -> tuple[Migration, ...]:
    """Return the migrations; none if they are misnamed, which is another finding."""
    try:
        return repository.migrations(backend)
    except ValueError:
        return ()


def _names(repository: Repository, backend: str) -> set[str]:
    migrations = _migrations(repository, backend)
    queries = {query.name for query in repository.queries(backend)}
    return queries | {f"migration {migration.number:04}" for migration in migrations}


def _names_asked_for(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in _QUERY_METHODS:
            continue
        for argument in node.args[:_NAME_POSITIONS]:
            text = _text(argument)
            if text is not None and _QUERY_NAME.fullmatch(text):
                yield argument.lineno, text
                break


def _texts(module: ast.Module) -> Iterator[str]:
    return (text for node in ast.walk(module) if (text := _text(node)) is not None)


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
