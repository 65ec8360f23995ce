"""Mutants of a module: each is the module with one small change.

Not mutated, because they decide nothing: messages (raised errors, any text with spaces, the names that checks, encoders
and decoders use in errors), annotations, docstrings, asserts, and the constants of a module (its limits).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}
_SHOWN: Final = 70

Step: TypeAlias = tuple[str, int | None]
"""From a node to one of its children: the field, and the place in it where the field is a list."""


class Mutant(msgspec.Struct, frozen=True):
    """One change. ``key`` names it without line numbers, so that it stays the same while other code moves."""

    key: str
    line: int
    path: tuple[Step, ...]
    choice: int
    in_function: bool


def mutants(path: Path, name: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of the text; ``name`` is the name of the file in keys."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen: Counter[str] = Counter()
    found: list[Mutant] = []
    for place, node, function, inside in _places(tree, (), "", inside=False):
        for choice, other in enumerate(_alternatives(node)):
            key = f"{name}:{function} {_text(node)} -> {_text(other)}"
            seen[key] += 1
            number = f" ({seen[key]})" if seen[key] > 1 else ""
            found.append(Mutant(key + number, getattr(node, "lineno", 0), place, choice, inside))
    return found


def mutated(path: Path, mutant: Mutant) -> ast.Module:
    """Return the tree of the file with the one change."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    *_, parent, node = _way(tree, mutant.path)
    field, index = mutant.path[-1]
    other = list(_alternatives(node))[mutant.choice]
    ast.copy_location(other, node)
    if index is None:
        setattr(parent, field, other)
    else:
        getattr(parent, field)[index] = other
    return ast.fix_missing_locations(tree)


def _way(tree: ast.AST, path: tuple[Step, ...]) -> list[ast.AST]:
    """Return the nodes from the tree to the end of a path."""
    nodes = [tree]
    for field, index in path:
        value = getattr(nodes[-1], field)
        nodes.append(value if index is None else value[index])
    return nodes


def _places(
    node: ast.AST, path: tuple[Step, ...], function: str, *, inside: bool
) -> Iterator[tuple[tuple[Step, ...], ast.AST, str, bool]]:
    """Return every node that may be changed: its path, its parent, and whether it is inside a function."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}" if function else node.name
        inside = inside or not isinstance(node, ast.ClassDef)
    for step, child in _children(node):
        if _is_left_alone(node, step[0], child):
            continue
        here = (*path, step)
        yield here, child, function, inside
        if not isinstance(child, ast.Raise | ast.JoinedStr):
            yield from _places(child, here, function, inside=inside)


def _children(node: ast.AST) -> Iterator[tuple[Step, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            yield from (((field, index), item) for index, item in enumerate(value) if isinstance(item, ast.AST))
        elif isinstance(value, ast.AST):
            yield (field, None), value


def _is_left_alone(parent: ast.AST, field: str, child: ast.AST) -> bool:
    if field in {"annotation", "returns", "decorator_list", "bases", "type_params"} or isinstance(child, ast.Assert):
        return True
    # Not decisions: type aliases, imports, the keywords of a class (msgspec's), limits, labels and docstrings.
    aliased = isinstance(parent, ast.AnnAssign) and "TypeAlias" in ast.unparse(parent.annotation)
    of_class = isinstance(parent, ast.ClassDef) and field == "keywords"
    limit = isinstance(parent, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign) and _is_limit(child.value)
    label = isinstance(parent, ast.Call) and isinstance(child, ast.Constant) and _names_things(parent.func)
    return (
        aliased or of_class or limit or label or isinstance(child, ast.Import | ast.ImportFrom) or _is_docstring(child)
    )


def _names_things(function: ast.expr) -> bool:
    """Return True if a function takes text only for its error messages."""
    return isinstance(function, ast.Name) and function.id.lstrip("_").partition("_")[0] in {"check", "encode", "decode"}


def _is_limit(value: ast.expr | None) -> bool:
    """Return True if this is a number, or is calculated from numbers alone."""
    nodes = [] if value is None else list(ast.walk(value))
    numbers = all(isinstance(node.value, int | float) for node in nodes if isinstance(node, ast.Constant))
    return numbers and all(
        isinstance(n, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop) for n in nodes
    )


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _alternatives(node: ast.AST) -> Iterator[ast.AST]:
    for change in _CHANGES:
        yield from change(node)


def _comparisons(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[index] = _COMPARED[type(operator)]()
            yield other


def _logic(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(op=ast.And() if isinstance(operator, ast.Or) else ast.Or(), values=values)
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op=operator, values=rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand


def _conditions(node: ast.AST) -> Iterator[ast.AST]:
    """Negate or remove conditions that `_comparisons` and `_logic` leave alone."""
    if isinstance(node, ast.If | ast.IfExp | ast.While) and isinstance(node.test, ast.Name | ast.Call | ast.Attribute):
        other = copy.deepcopy(node)
        other.test = ast.UnaryOp(op=ast.Not(), operand=other.test)
        yield other
    if isinstance(node, ast.comprehension):
        for index in range(len(node.ifs)):
            other_loop = copy.deepcopy(node)
            del other_loop.ifs[index]
            yield other_loop
    if isinstance(node, ast.match_case) and node.guard is not None:
        other_case = copy.deepcopy(node)
        # Without its guard, an irrefutable pattern before other cases is a syntax error.
        other_case.guard = ast.Constant(value=True) if isinstance(node.pattern, ast.MatchAs) else None
        yield other_case


def _arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and type(node.op) in _CALCULATED:
        other = copy.deepcopy(node)
        other.op = _CALCULATED[type(node.op)]()
        yield other
    if isinstance(node, ast.AugAssign) and type(node.op) in _CALCULATED:
        other_step = copy.deepcopy(node)
        other_step.op = _CALCULATED[type(node.op)]()
        yield other_step
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand


def _constants(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(value=not value)
    elif isinstance(value, int):
        yield ast.Constant(value=value + 1)
        yield ast.Constant(value=value - 1)
    elif isinstance(value, str) and not any(letter.isspace() for letter in value):
        yield ast.Constant(value=value + "x")


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield ast.Return(value=ast.Constant(value=None))
        case ast.Raise() | ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _arguments(node: ast.AST) -> Iterator[ast.AST]:
    """Remove the keyword arguments of a call, one at a time."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return
    for index in range(len(node.keywords)):
        other = copy.deepcopy(node)
        del other.keywords[index]
        yield other


def _choices(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _text(node: ast.AST) -> str:
    match node:
        case ast.If() | ast.While():
            text = f"if {ast.unparse(node.test)}:"
        case ast.Pass():
            text = "nothing"
        case ast.match_case():
            text = ast.unparse(node).splitlines()[0]
        case _:
            text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


_CHANGES: Final[tuple[Callable[[ast.AST], Iterator[ast.AST]], ...]] = (
    _comparisons,
    _logic,
    _conditions,
    _arithmetic,
    _constants,
    _statements,
    _arguments,
    _choices,
)
