"""The types of lashlang, as a program or a host writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from lash.lang.syntax.span import Span

ScalarName: TypeAlias = Literal["any", "str", "int", "float", "bool", "dict", "null"]


@dataclass(frozen=True, slots=True)
class TypeNode:
    """The base of all types. The span is not part of identity; types that a host declares have none."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ScalarType(TypeNode):
    name: ScalarName


@dataclass(frozen=True, slots=True)
class EnumType(TypeNode):
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListType(TypeNode):
    item: Type


@dataclass(frozen=True, slots=True)
class ObjectField:
    """A field of an object type. An optional field may be absent; it is never null for that reason."""

    name: str
    type: Type
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ObjectType(TypeNode):
    """A record with these fields, in this order. Names are unique."""

    fields: tuple[ObjectField, ...]


@dataclass(frozen=True, slots=True)
class UnionType(TypeNode):
    members: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class ProcessType(TypeNode):
    """A process definition. ``input`` is the type of its only parameter, or an object of all of them."""

    input: Type
    output: Type
    input_count: int = 1


@dataclass(frozen=True, slots=True)
class TriggerHandleType(TypeNode):
    event: Type


@dataclass(frozen=True, slots=True)
class RefType(TypeNode):
    """A type by its name: declared in the module, or ``host.Name``, or a resource or descriptor of the host."""

    name: str


Type: TypeAlias = ScalarType | EnumType | ListType | ObjectType | UnionType | ProcessType | TriggerHandleType | RefType

ANY: Final = ScalarType("any")
STR: Final = ScalarType("str")
INT: Final = ScalarType("int")
FLOAT: Final = ScalarType("float")
BOOL: Final = ScalarType("bool")
DICT: Final = ScalarType("dict")
NULL: Final = ScalarType("null")
