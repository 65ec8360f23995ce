"""The stored form of types."""

from __future__ import annotations

from typing import Final

from lash.lang.codec.reader import deeper, fields, flag, items, refused, tagged, text
from lash.lang.syntax import types
from lash.lang.syntax.types import ScalarName, Type
from lash.model.value import JSON

_SCALARS: Final[dict[str, ScalarName]] = {
    "Any": "any",
    "Str": "str",
    "Int": "int",
    "Float": "float",
    "Bool": "bool",
    "Dict": "dict",
    "Null": "null",
}
_TAGS: Final = {name: tag for tag, name in _SCALARS.items()}


def encode_type(kind: Type) -> JSON:
    """Return the JSON of a type."""
    match kind:
        case types.ScalarType():
            return _TAGS[kind.name]
        case types.EnumType():
            return {"Enum": list(kind.values)}
        case types.ListType():
            return {"List": encode_type(kind.item)}
        case types.ObjectType():
            return {"Object": encode_fields(kind)}
        case types.UnionType():
            return {"Union": [encode_type(member) for member in kind.members]}
        case types.ProcessType():
            ends = {"input": encode_type(kind.input), "output": encode_type(kind.output)}
            return {"Process": {**ends, "input_count": kind.input_count}}
        case types.TriggerHandleType():
            return {"TriggerHandle": encode_type(kind.event)}
        case types.RefType():
            return {"Ref": kind.name}


def encode_fields(kind: types.ObjectType) -> list[JSON]:
    return [{"name": field.name, "ty": encode_type(field.type), "optional": field.optional} for field in kind.fields]


def decode_type(value: JSON, depth: int = 0) -> Type:
    """Read a type, or raise CorruptData."""
    below = deeper(depth)
    tag, operand = tagged(value)
    if isinstance(value, str) and tag in _SCALARS:
        return types.ScalarType(_SCALARS[tag])
    match tag:
        case "Enum":
            return types.EnumType(items(operand, text, below))
        case "List":
            return types.ListType(decode_type(operand, below))
        case "Object":
            return decode_object(operand, below)
        case "Union":
            return types.UnionType(items(operand, decode_type, below))
        case "Process":
            return _process(operand, below)
        case "TriggerHandle":
            return types.TriggerHandleType(decode_type(operand, below))
        case "Ref":
            return types.RefType(text(operand))
        case _:
            raise refused("a type")


def decode_object(value: JSON, depth: int = 0) -> types.ObjectType:
    """Read the fields of an object type; names are unique."""
    found = types.ObjectType(items(value, _field, depth))
    if len({field.name for field in found.fields}) < len(found.fields):
        raise refused("unique names of fields")
    return found


def _field(value: JSON, depth: int) -> types.ObjectField:
    found = fields(value, ("name", "ty"), ("optional",))
    optional = flag(found.get("optional", False))
    return types.ObjectField(text(found["name"]), decode_type(found["ty"], depth), optional=optional)


def _process(value: JSON, depth: int) -> types.ProcessType:
    found = fields(value, ("input", "output", "input_count"))
    count = found["input_count"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise refused("a count")
    return types.ProcessType(decode_type(found["input"], depth), decode_type(found["output"], depth), count)
