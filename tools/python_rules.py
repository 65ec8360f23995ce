"""Rules about Python code: no SQL from strings, no data that is run as code, and a report on lengths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tools.repository import SOURCE, Finding, Repository

LONG_FILE: Final = 400
LONG_FUNCTION: Final = 60

_STATEMENT = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*"
    r"(?:(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|MERGE|WITH|VALUES|CREATE|ALTER|DROP|TRUNCATE|PRAGMA|ATTACH|DETACH|BEGIN"
    r"|COMMIT|SAVEPOINT|RELEASE|ROLLBACK|EXPLAIN|VACUUM|ANALYZE|REINDEX|LISTEN|UNLISTEN|NOTIFY|SET|LOCK|GRANT|REVOKE"
    r"|CALL|EXECUTE|PREPARE|DECLARE|COPY)\b"
    r"|(?i:select\s.*\sfrom\s|insert\s+(?:or\s+\w+\s+)?into\s|update\s+\S+\s+set\s|delete\s+from\s"
    r"|(?:create|alter|drop)\s+(?:table|index|unique|schema|view|trigger|function)\s|pragma\s+\w+\s*[=({]))",
    re.DOTALL,
)
_CLAUSE = re.compile(r"\s*(?:WHERE|AND|OR|ORDER BY|GROUP BY|LIMIT|JOIN|VALUES|RETURNING|ON CONFLICT|FROM|SET)\b")
_FOREIGN_TABLES: Final = "lash/adapters/importing/source.py"
"""Reads the tables of other programs, whose names and columns are data; it quotes each of them."""
_TYPED_READS: Final = "lash/base/shapes.py"
_RUNNERS: Final = frozenset({"eval", "exec", "compile", "__import__"})
_SHELLS: Final = frozenset({"system", "popen"})
_UNSAFE_MODULES: Final = frozenset(
    {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib", "yaml", "code", "pty"}
)
_RUNNING_METHODS = frozenset({"execute", "executemany", "execute_script", "fetch", "fetchrow", "fetchval", "prepare"})


def no_sql_from_strings(repository: Repository) -> Iterator[Finding]:
    """No statement is built in Python or passed to a driver after it was built."""
    for path, module in repository.modules(SOURCE):
        if str(path).endswith(_FOREIGN_TABLES):
            continue
        visitor = _BuiltSQL()
        visitor.visit(module)
        for line in sorted(visitor.lines):
            yield Finding(path, line, "SQL is built from strings; write a named query")


def nothing_runs_data(repository: Repository) -> Iterator[Finding]:
    """No module of the product can turn stored bytes into code, or text into a command of a shell."""
    for path, module in repository.modules(SOURCE):
        for node in ast.walk(module):
            yield from (Finding(path, getattr(node, "lineno", 0), message) for message in _runs_data(node))


def typed_reads_are_prepared(repository: Repository) -> Iterator[Finding]:
    """Only `lash.base.shapes` lets msgspec read values of a type: threads that use a new type at once crash."""
    for path, module in repository.modules(SOURCE):
        if str(path).endswith(_TYPED_READS):
            continue
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and _reads_typed(node):
                yield Finding(path, node.lineno, "msgspec reads a type here; call lash.base.shapes, which prepares it")


def _reads_typed(call: ast.Call) -> bool:
    """Return True for ``msgspec.convert``, a typed decoder of msgspec, and a typed ``decode`` of one of its formats."""
    name = ast.unparse(call.func)
    if name == "msgspec.convert":
        return True
    if not name.startswith(("msgspec.json.", "msgspec.msgpack.")):
        return False
    is_typed = any(keyword.arg == "type" for keyword in call.keywords)
    return is_typed or (name.endswith(".Decoder") and bool(call.args))


def _runs_data(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(module="os", names=names):
            modules = [name.name for name in names]
        case ast.ImportFrom(module=str(module)):
            modules = [module]
        case ast.Call(func=ast.Name(id=name)) if name in _RUNNERS:
            yield f"{name}() runs data as code"
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in _SHELLS:
            yield f"os.{name}() hands text to a shell"
            return
        case ast.Call(keywords=keywords) if any(_is_shell(keyword) for keyword in keywords):
            yield "shell=True hands text to a shell"
            return
        case ast.Attribute(attr="create_subprocess_shell"):
            yield "create_subprocess_shell() hands text to a shell"
            return
        case _:
            return
    for module in modules:
        if module.partition(".")[0] in _UNSAFE_MODULES or module in _SHELLS:
            yield f"{module} can run what it reads"


def _is_shell(keyword: ast.keyword) -> bool:
    """Return True if this is ``shell=`` with anything but a plain False."""
    return keyword.arg == "shell" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)


def long_files_and_functions(repository: Repository) -> Iterator[Finding]:
    """Files and functions above the guide's lengths. A report: a longer one may have a good reason."""
    for path in repository.files("src", "tests", "tools", "benchmarks", suffixes=(".py",)):
        text = path.read_text(encoding="utf-8")
        length = len(text.splitlines())
        if length > LONG_FILE:
            yield Finding(repository.relative(path), 0, f"{length} lines; the guide says {LONG_FILE}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONG_FUNCTION:
                    message = f"function {node.name} has {length} lines; the guide says {LONG_FUNCTION}"
                    yield Finding(repository.relative(path), node.lineno, message)


class _BuiltSQL(ast.NodeVisitor):
    """Collects the lines that build text which looks like SQL."""

    def __init__(self) -> None:
        self.lines: set[int] = set()

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._check(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._check(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        text = _any_text(node.value)
        if isinstance(node.op, ast.Add) and text is not None and _CLAUSE.match(text):
            self.lines.add(node.lineno)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        runs = isinstance(node.func, ast.Attribute) and node.func.attr in _RUNNING_METHODS
        if runs and node.args and _built_text(node.args[0]) is not None:
            self.lines.add(node.lineno)
        self._check(node)

    def _check(self, node: ast.expr) -> None:
        text = _built_text(node)
        if text is not None and _STATEMENT.match(text):
            self.lines.add(node.lineno)
        else:
            self.generic_visit(node)


def _built_text(node: ast.expr) -> str | None:
    """The text of an expression that builds a string, with {} for its variable parts; None for any other."""
    match node:
        case ast.JoinedStr(values=values) if any(isinstance(value, ast.FormattedValue) for value in values):
            return "".join(_any_text(value) or "{}" for value in values)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _any_text(left)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = (_any_text(left), _any_text(right))
            return None if texts == (None, None) else "".join(text or "{}" for text in texts)
        case ast.Call(func=ast.Attribute(value=template, attr="format")):
            return _any_text(template)
    return None


def _any_text(node: ast.expr) -> str | None:
    """The text of a literal or of an expression that builds one."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    return _built_text(node)
