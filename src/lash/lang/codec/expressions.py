"""The stored form of expressions: one table from tags to nodes and their fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from lash.lang.codec.reader import deeper, fields, flag, items, pairs, refused, tagged, text
from lash.lang.codec.types import decode_type, encode_type
from lash.lang.syntax import nodes
from lash.lang.syntax.nodes import Expression
from lash.model.value import JSON


@dataclass(frozen=True, slots=True)
class Part:
    """How one field of a node is written and read. An optional part is omitted if it is empty."""

    attribute: str
    encode: Callable[[Any], JSON]
    decode: Callable[[JSON, int], Any]
    optional: bool = False


Operand: TypeAlias = "Part | Mapping[str, Part] | None"
"""The only part of a node, its named parts, or None if it has none."""


def encode_expression(node: Expression) -> JSON:
    """Return the JSON of a node and everything below it."""
    if isinstance(node, nodes.Assign):
        return _encode_assign(node)
    tag = _TAGS[type(node)]
    operand = _NODES[tag][1]
    if operand is None:
        return tag
    if isinstance(operand, Part):
        return {tag: operand.encode(getattr(node, operand.attribute))}
    named = {name: (part, getattr(node, part.attribute)) for name, part in operand.items()}
    return {tag: {name: part.encode(value) for name, (part, value) in named.items() if value or not part.optional}}


def decode_expression(value: JSON, depth: int = 0) -> Expression:
    """Read a node, or raise CorruptData."""
    below = deeper(depth)
    tag, body = tagged(value)
    if tag == "Assign":
        return _decode_assign(body, below)
    if tag not in _NODES or isinstance(value, str) != (_NODES[tag][1] is None):
        raise refused("a node")
    make, operand = _NODES[tag]
    if operand is None:
        return make()
    if isinstance(operand, Part):
        return make(**{operand.attribute: operand.decode(body, below)})
    optional = tuple(name for name, part in operand.items() if part.optional)
    found = fields(body, tuple(name for name in operand if name not in optional), optional)
    empty: list[JSON] = []
    return make(**{part.attribute: part.decode(found.get(name, empty), below) for name, part in operand.items()})


def _plain(value: JSON) -> JSON:
    return value


def _decode_number(value: JSON, _depth: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused("a number")
    try:
        number = float(value)
    except OverflowError:
        raise refused("a number that a double holds") from None
    if not math.isfinite(number) or number < 0:
        raise refused("a number that a program can contain")
    return number


def _encode_optional(node: Expression | None) -> JSON:
    return None if node is None else encode_expression(node)


def _decode_optional(value: JSON, depth: int) -> Expression | None:
    return None if value is None else decode_expression(value, depth)


def _encode_all(found: tuple[Expression, ...]) -> JSON:
    return [encode_expression(node) for node in found]


def _decode_all(value: JSON, depth: int) -> tuple[Expression, ...]:
    return items(value, decode_expression, depth)


def _encode_entries(entries: tuple[tuple[str, Expression], ...]) -> JSON:
    return [[key, encode_expression(value)] for key, value in entries]


def _decode_entries(value: JSON, depth: int) -> tuple[tuple[str, Expression], ...]:
    return pairs(value, decode_expression, depth)


def encode_label(label: nodes.Label) -> JSON:
    description: dict[str, JSON] = {} if label.description is None else {"description": label.description}
    return {"title": label.title, **description}


def decode_label(value: JSON, _depth: int = 0) -> nodes.Label:
    found = fields(value, ("title",), ("description",))
    return nodes.Label(text(found["title"]), text(found["description"]) if "description" in found else None)


def _encode_clauses(clauses: tuple[nodes.Clause, ...]) -> JSON:
    return [
        {"For": {"binding": clause.binding, "iterable": encode_expression(clause.iterable)}}
        if isinstance(clause, nodes.ForClause)
        else {"If": {"condition": encode_expression(clause.condition)}}
        for clause in clauses
    ]


def _decode_clauses(value: JSON, depth: int) -> tuple[nodes.Clause, ...]:
    found = items(value, _decode_clause, depth)
    if not found or not isinstance(found[0], nodes.ForClause):
        raise refused("a comprehension that begins with for")
    return found


def _decode_clause(value: JSON, depth: int) -> nodes.Clause:
    tag, body = tagged(value)
    if tag == "For":
        found = fields(body, ("binding", "iterable"))
        return nodes.ForClause(text(found["binding"]), decode_expression(found["iterable"], depth))
    if tag != "If":
        raise refused("a clause of a comprehension")
    return nodes.IfClause(decode_expression(fields(body, ("condition",))["condition"], depth))


def _encode_steps(steps: tuple[nodes.Step, ...]) -> JSON:
    return [
        {"Field": step.name} if isinstance(step, nodes.FieldStep) else {"Index": encode_expression(step.index)}
        for step in steps
    ]


def _decode_step(value: JSON, depth: int) -> nodes.Step:
    tag, body = tagged(value)
    if tag == "Field":
        return nodes.FieldStep(text(body))
    if tag != "Index":
        raise refused("a step of an assignment")
    return nodes.IndexStep(decode_expression(body, depth))


def _encode_assign(node: nodes.Assign) -> JSON:
    steps: dict[str, JSON] = {"steps": _encode_steps(node.steps)} if node.steps else {}
    return {"Assign": {"target": {"root": node.root, **steps}, "expr": encode_expression(node.value)}}


def _decode_assign(value: JSON, depth: int) -> nodes.Assign:
    found = fields(value, ("target", "expr"))
    target = fields(found["target"], ("root",), ("steps",))
    steps = items(target.get("steps", []), _decode_step, depth)
    return nodes.Assign(text(target["root"]), steps, decode_expression(found["expr"], depth))


def _operator(names: tuple[str, ...]) -> Part:
    tags = {name: "".join(word.capitalize() for word in name.split("-")) for name in names}
    found = {tag: name for name, tag in tags.items()}

    def decode(value: JSON, _depth: int) -> str:
        if not isinstance(value, str) or value not in found:
            raise refused("an operator")
        return found[value]

    return Part("operator", tags.__getitem__, decode)


def _expression(attribute: str) -> Part:
    return Part(attribute, encode_expression, decode_expression)


def _text(attribute: str) -> Part:
    return Part(attribute, _plain, text)


def _all(attribute: str) -> Part:
    return Part(attribute, _encode_all, _decode_all)


def _entries(attribute: str) -> Part:
    return Part(attribute, _encode_entries, _decode_entries)


_OPERAND: Final = _expression("operand")
_OPTIONAL_OPERAND: Final = Part("operand", _encode_optional, _decode_optional)
_PATH: Final = Part("path", list, lambda value, depth: items(value, text, depth), optional=True)

_NODES: Final[dict[str, tuple[Callable[..., Expression], Operand]]] = {
    "Block": (nodes.Block, _all("statements")),
    "LabelAnnotated": (
        nodes.Labelled,
        {"label": Part("label", encode_label, decode_label), "expr": _expression("expression")},
    ),
    "Null": (nodes.Null, None),
    "Bool": (nodes.Bool, Part("value", _plain, flag)),
    "Number": (nodes.Number, Part("value", _plain, _decode_number)),
    "String": (nodes.String, _text("value")),
    "Variable": (nodes.Variable, _text("name")),
    "List": (nodes.List, _all("items")),
    "ListComprehension": (
        nodes.ListComp,
        {"element": _expression("element"), "clauses": Part("clauses", _encode_clauses, _decode_clauses)},
    ),
    "Record": (nodes.Record, _entries("entries")),
    "If": (
        nodes.If,
        {
            "condition": _expression("condition"),
            "then_block": _expression("then"),
            "else_block": _expression("otherwise"),
        },
    ),
    "For": (
        nodes.For,
        {"binding": _text("binding"), "iterable": _expression("iterable"), "body": _expression("body")},
    ),
    "While": (nodes.While, {"condition": _expression("condition"), "body": _expression("body")}),
    "Break": (nodes.Break, None),
    "Continue": (nodes.Continue, None),
    "StartProcess": (nodes.Start, {"process": _text("process"), "args": _entries("arguments")}),
    "ProcessRef": (nodes.ProcessRef, {"process": _text("process")}),
    "HostDescriptorConstructor": (
        nodes.HostDescriptor,
        {"type_name": _text("type_name"), "input": _expression("input")},
    ),
    "ResourceRef": (
        nodes.ResourceRef,
        {"path": _PATH, "resource_type": _text("resource_type"), "alias": _text("alias")},
    ),
    "ReceiverCall": (
        nodes.ReceiverCall,
        {"receiver": _expression("receiver"), "operation": _text("operation"), "args": _all("arguments")},
    ),
    "Await": (nodes.Await, _OPERAND),
    "SleepFor": (nodes.SleepFor, _OPERAND),
    "SleepUntil": (nodes.SleepUntil, _OPERAND),
    "WaitSignal": (nodes.WaitSignal, {"name": _text("name")}),
    "SignalRun": (
        nodes.SignalRun,
        {"run": _expression("run"), "name": _text("name"), "payload": _expression("payload")},
    ),
    "ResultUnwrap": (nodes.Unwrap, _OPERAND),
    "Cancel": (nodes.Cancel, _OPERAND),
    "Print": (nodes.Print, _OPERAND),
    "Submit": (nodes.Submit, _OPTIONAL_OPERAND),
    "Yield": (nodes.Yield, _OPERAND),
    "Wake": (nodes.Wake, _OPERAND),
    "Finish": (nodes.Finish, _OPTIONAL_OPERAND),
    "Fail": (nodes.Fail, _OPERAND),
    "BuiltinCall": (nodes.BuiltinCall, {"name": _text("name"), "args": _all("arguments")}),
    "Field": (nodes.Field, {"target": _expression("target"), "field": _text("name")}),
    "Index": (nodes.Index, {"target": _expression("target"), "index": _expression("index")}),
    "Unary": (nodes.Unary, {"op": _operator(get_args(nodes.UnaryOperator)), "expr": _OPERAND}),
    "Binary": (
        nodes.Binary,
        {
            "left": _expression("left"),
            "op": _operator(get_args(nodes.BinaryOperator)),
            "right": _expression("right"),
        },
    ),
    "TypeLiteral": (nodes.TypeLiteral, Part("type", encode_type, decode_type)),
}
_TAGS: Final = {make: tag for tag, (make, _) in _NODES.items()}
