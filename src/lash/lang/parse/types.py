"""Parses types."""

from __future__ import annotations

from typing import Final

from lash.lang.parse.cursor import Cursor
from lash.lang.parse.tokens import NAME, STRING
from lash.lang.syntax import types
from lash.lang.syntax.types import Type

_SCALARS: Final[dict[str, types.ScalarName]] = {
    "any": "any",
    "str": "str",
    "string": "str",
    "int": "int",
    "integer": "int",
    "float": "float",
    "number": "float",
    "bool": "bool",
    "boolean": "bool",
    "dict": "dict",
    "object": "dict",
}
"""Names of scalar types, with the names that models use for them."""

_KINDS_OF_TYPES: Final = "types are any, str, int, float, bool, dict, null, list[T], enum[...], {...} or a name"


def parse_type(cursor: Cursor) -> Type:
    """Parse a type: terms with `|` between them."""
    cursor.enter()
    start = cursor.token.span
    members = [_term(cursor)]
    while cursor.accept("|"):
        members.append(_term(cursor))
    cursor.leave()
    if len(members) == 1:
        return members[0]
    return types.UnionType(tuple(members), span=cursor.span_from(start))


def _term(cursor: Cursor) -> Type:
    start = cursor.token.span
    if cursor.accept("null"):
        return types.ScalarType("null", span=start)
    if cursor.at(STRING):
        return types.EnumType((cursor.expect_string("a string"),), span=start)
    if cursor.at("{"):
        return parse_object_type(cursor)
    if cursor.at_word("Type") and cursor.peek().kind == "{":
        cursor.advance()
        return parse_object_type(cursor)
    if not cursor.at(NAME):
        raise cursor.expected(
            "a type", "types are any, str, int, float, bool, dict, null, list[T], enum[...], {...} or a name"
        )
    return _named(cursor)


def _named(cursor: Cursor) -> Type:
    start = cursor.token.span
    word, following = cursor.token.text, cursor.peek().kind
    if word == "list" and following == "[":
        cursor.position += 2
        item = parse_type(cursor)
        cursor.expect("]")
        return types.ListType(item, span=cursor.span_from(start))
    if word == "enum" and following == "[":
        return _enum(cursor)
    if word in ("Process", "TriggerHandle") and following == "<":
        return _generic(cursor)
    if word in _SCALARS and following != ".":
        cursor.advance()
        return types.ScalarType(_SCALARS[word], span=start)
    return types.RefType(_dotted(cursor), span=cursor.span_from(start))


def _enum(cursor: Cursor) -> Type:
    start = cursor.token.span
    cursor.position += 2
    values = [cursor.expect_string("a string")]
    while cursor.accept(",") and not cursor.at("]"):
        values.append(cursor.expect_string("a string"))
    cursor.expect("]")
    return types.EnumType(tuple(values), span=cursor.span_from(start))


def _generic(cursor: Cursor) -> Type:
    """Parse `Process<In, Out>` or `TriggerHandle<Event>`."""
    start = cursor.token.span
    word = cursor.advance().text
    cursor.expect("<")
    first = parse_type(cursor)
    if word == "TriggerHandle":
        cursor.expect(">")
        return types.TriggerHandleType(first, span=cursor.span_from(start))
    cursor.expect(",")
    output = parse_type(cursor)
    cursor.expect(">")
    return types.ProcessType(first, output, span=cursor.span_from(start))


def _dotted(cursor: Cursor) -> str:
    names = [cursor.advance().text]
    while cursor.accept("."):
        names.append(cursor.expect(NAME, "a name").text)
    return ".".join(names)


def parse_object_type(cursor: Cursor) -> types.ObjectType:
    """Parse `{field: type, field: type?}`."""
    start = cursor.token.span
    cursor.expect("{")
    fields: dict[str, types.ObjectField] = {}
    while not cursor.at("}"):
        place = cursor.token.span
        name = cursor.expect_key("a field name or `}`")
        if name in fields:
            raise cursor.fail("duplicate-field", f"field `{name}` is declared twice", place)
        cursor.expect(":")
        kind = parse_type(cursor)
        fields[name] = types.ObjectField(name, kind, optional=cursor.accept("?") is not None)
        if not cursor.accept(","):
            break
    cursor.expect("}", "`,` or `}`")
    return types.ObjectType(tuple(fields.values()), span=cursor.span_from(start))
