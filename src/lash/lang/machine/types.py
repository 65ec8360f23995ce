"""Types of a program as JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lash.lang.syntax import types
from lash.lang.syntax.types import Type
from lash.lang.values.convert import to_json
from lash.lang.values.fault import Fault, FaultKind, limit_error
from lash.lang.values.schema import schema_of
from lash.lang.values.value import Value, weight
from lash.model.value import JSONObject

_SCALARS: Final = {
    "any": None,
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "object",
    "null": "null",
}
_MAX_DEPTH: Final = 40
"""A type that names itself has no end."""

_MAX_SCHEMA: Final = 64 * 1024
"""The weight of a schema that another type contains. Types that contain themselves twice would double at each step."""


def schema_of_type(
    declared: Type, named: Mapping[str, Type], variables: Mapping[str, Value] | None = None, depth: int = 0
) -> JSONObject:
    """Return the JSON schema of a type; names are declared types first, then variables that hold a Type value."""
    if depth > _MAX_DEPTH:
        raise limit_error(f"a type is nested more than {_MAX_DEPTH} levels deep, or names itself")

    def inner(each: Type) -> JSONObject:
        return schema_of_type(each, named, variables, depth + 1)

    match declared:
        case types.ScalarType():
            name = _SCALARS[declared.name]
            return {} if name is None else {"type": name}
        case types.EnumType():
            return {"type": "string", "enum": list(declared.values)}
        case types.ListType():
            return {"type": "array", "items": inner(declared.item)}
        case types.ObjectType():
            return _object(declared, {each.name: inner(each.type) for each in declared.fields})
        case types.UnionType():
            return {"anyOf": [inner(each) for each in declared.members]}
        case types.RefType():
            return inner(named[declared.name]) if declared.name in named else _held(declared.name, variables)
    return {}


def _object(declared: types.ObjectType, properties: JSONObject) -> JSONObject:
    required = [each.name for each in declared.fields if not each.optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _held(name: str, variables: Mapping[str, Value] | None) -> JSONObject:
    """Return the schema that a variable holds; a name without one is an authority, which any value stands for."""
    if variables is None:
        return {}
    if name not in variables:
        raise Fault(FaultKind.UNKNOWN_NAME, f"`{name}` is neither a type nor a variable with a Type value")
    found = schema_of(variables[name], f"the type `{name}`")
    if weight(found) > _MAX_SCHEMA:
        raise limit_error(f"the type `{name}` is too large to be part of another one")
    held = to_json(found)
    assert isinstance(held, dict)
    return held
