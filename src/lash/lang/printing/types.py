"""Writes types."""

from __future__ import annotations

from lash.lang.printing.words import key_text, string_text
from lash.lang.syntax import types
from lash.lang.syntax.types import Type


def type_text(kind: Type) -> str:
    """Return a type as a program writes it."""
    match kind:
        case types.ScalarType():
            return kind.name
        case types.EnumType() if len(kind.values) == 1:
            return string_text(kind.values[0])
        case types.EnumType():
            return f"enum[{', '.join(map(string_text, kind.values))}]"
        case types.ListType():
            return f"list[{type_text(kind.item)}]"
        case types.ObjectType():
            return _object_text(kind)
        case types.UnionType():
            return " | ".join(map(type_text, kind.members))
        case types.ProcessType():
            return f"Process<{type_text(kind.input)}, {type_text(kind.output)}>"
        case types.TriggerHandleType():
            return f"TriggerHandle<{type_text(kind.event)}>"
        case types.RefType():
            return kind.name


def _object_text(kind: types.ObjectType) -> str:
    if not kind.fields:
        return "{}"
    fields = (f"{key_text(each.name)}: {type_text(each.type)}{'?' if each.optional else ''}" for each in kind.fields)
    return f"{{ {', '.join(fields)} }}"
