"""JSON schemas of tools as types of the language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lash.lang.syntax.types import (
    ANY,
    BOOL,
    DICT,
    FLOAT,
    INT,
    NULL,
    STR,
    EnumType,
    ListType,
    ObjectField,
    ObjectType,
    Type,
    UnionType,
)
from lash.model.value import JSONObject

_SCALARS: Final[Mapping[str, Type]] = {"string": STR, "number": FLOAT, "integer": INT, "boolean": BOOL, "null": NULL}
_MAX_DEPTH: Final = 12
"""Deeper parts of a schema are of any type, as is a schema that contains itself; the tool checks the values."""


def type_of_schema(schema: JSONObject, *, takes_floats: bool = False) -> Type:
    """Return the type of a JSON schema; what the language cannot say is of any type.

    With ``takes_floats`` integers are numbers: the language computes with doubles, and the tool checks the value.
    """
    return _type(schema, schema.get("$defs", {}), 0, takes_floats=takes_floats)


def _type(schema: Any, named: Mapping[str, Any], depth: int, *, takes_floats: bool) -> Type:  # noqa: ANN401 (a schema)
    def inner(each: Any) -> Type:  # noqa: ANN401 (a schema)
        return _type(each, named, depth + 1, takes_floats=takes_floats)

    if depth > _MAX_DEPTH or not isinstance(schema, dict):
        return ANY
    reference, choices, options = schema.get("$ref"), schema.get("anyOf"), schema.get("enum")
    if isinstance(reference, str):
        return inner(named.get(reference.rpartition("/")[2]))
    if isinstance(choices, list):
        return _union([inner(each) for each in choices])
    if isinstance(options, list):
        strings = [each for each in options if isinstance(each, str)]
        return EnumType(tuple(strings)) if strings and len(strings) == len(options) else ANY
    kind = schema.get("type")
    if kind == "array":
        return ListType(inner(schema.get("items")))
    if kind == "object":
        return _object(schema, inner)
    if kind == "integer" and takes_floats:
        return FLOAT
    return _SCALARS.get(str(kind), ANY)


def _object(schema: JSONObject, inner: Any) -> Type:  # noqa: ANN401 (the caller's recursion)
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return DICT
    required = schema.get("required", ())
    fields = ((name, inner(each)) for name, each in properties.items())
    return ObjectType(tuple(ObjectField(name, each, name not in required) for name, each in fields))


def _union(members: list[Type]) -> Type:
    flat = [each for member in members for each in (member.members if isinstance(member, UnionType) else (member,))]
    unique = tuple(dict.fromkeys(flat))
    if ANY in unique:
        return ANY
    return unique[0] if len(unique) == 1 else UnionType(unique)
