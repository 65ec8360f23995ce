"""What types mean: names resolved, and which values fit where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lash.lang.host.catalogue import HostCatalogue
from lash.lang.syntax import types
from lash.lang.syntax.types import ANY, NULL, Type

_MAX_PARTS: Final = 200
"""Parts of an inferred type."""


@dataclass(frozen=True, slots=True)
class TypeScope:
    """The types that a module can name: its own, and those of its host."""

    declared: Mapping[str, Type]
    catalogue: HostCatalogue
    _compared: dict[tuple[Type, Type, bool], bool] = field(default_factory=dict)
    """What comparisons have found, so that types with shared parts are compared once."""

    def knows(self, name: str) -> bool:
        return name in self.declared or name in self.catalogue.data_types or self.is_opaque(name)

    def is_opaque(self, name: str) -> bool:
        """Return whether values of this type have no fields: authorities and values of constructors."""
        return self.is_resource(name) or (name not in self.declared and name in self._descriptors())

    def is_resource(self, name: str) -> bool:
        return name not in self.declared and name in self.catalogue.resource_types

    def _descriptors(self) -> set[str]:
        made = {each.type_name for each in self.catalogue.constructors.values()}
        return made | self.catalogue.trigger_sources.keys()

    def resolve(self, kind: Type) -> Type:
        """Return what a name stands for; opaque types and unknown names stand for themselves."""
        while isinstance(kind, types.RefType):
            found = self.declared.get(kind.name) or self.catalogue.data_types.get(kind.name)
            if found is None:
                return kind
            kind = found
        return kind

    def authority(self, kind: Type) -> str | None:
        """Return the resource type if values of this type are authorities, else None."""
        resolved = self.resolve(kind)
        return resolved.name if isinstance(resolved, types.RefType) and self.is_resource(resolved.name) else None

    def assignable(self, source: Type, target: Type, *, lenient: bool = False) -> bool:
        """Return whether a value of the source type fits the target type.

        An unknown value fits only ``any``; if ``lenient``, it fits everything and is checked at run time.
        """
        key = source, target, lenient
        if key not in self._compared:
            self._compared[key] = self._assignable(self.resolve(source), self.resolve(target), lenient=lenient)
        return self._compared[key]

    def _assignable(self, source: Type, target: Type, *, lenient: bool) -> bool:
        if target in (ANY, source):
            return True
        if source == ANY:
            return lenient
        if isinstance(source, types.UnionType):
            return all(self.assignable(member, target, lenient=lenient) for member in source.members)
        if isinstance(target, types.UnionType):
            return any(self.assignable(source, member, lenient=lenient) for member in target.members)
        return self._fits(source, target, lenient=lenient)

    def _fits(self, source: Type, target: Type, *, lenient: bool) -> bool:
        match source, target:
            case types.ScalarType("int"), types.ScalarType("float"):
                return True
            case types.EnumType(), types.ScalarType("str"):
                return True
            case types.EnumType(), types.EnumType():
                return set(source.values) <= set(target.values)
            case types.ListType(), types.ListType():
                return self.assignable(source.item, target.item, lenient=lenient)
            case types.ObjectType(), types.ScalarType("dict"):
                return True
            case types.ScalarType("dict"), types.ObjectType():
                return lenient
            case types.ObjectType(), types.ObjectType():
                return self._object_fits(source, target, lenient=lenient)
            case types.ProcessType(), types.ProcessType():
                return (
                    source.input_count == target.input_count
                    and self.assignable(source.input, target.input, lenient=lenient)
                    and self.assignable(source.output, target.output, lenient=lenient)
                )
            case types.TriggerHandleType(), types.TriggerHandleType():
                return self.assignable(source.event, target.event, lenient=lenient)
        return False

    def _object_fits(self, source: types.ObjectType, target: types.ObjectType, *, lenient: bool) -> bool:
        present = {each.name: each for each in source.fields}
        for wanted in target.fields:
            found = present.get(wanted.name)
            if found is None or (found.optional and not wanted.optional):
                if found is not None or not wanted.optional:
                    return False
            elif not self.assignable(found.type, wanted.type, lenient=lenient):
                return False
        return True


def union_of(members: Iterable[Type]) -> Type:
    """Return the smallest type for values of all these types; null if there are none."""
    found: dict[Type, None] = {}
    for member in members:
        parts = member.members if isinstance(member, types.UnionType) else (member,)
        found.update(dict.fromkeys(parts))
    if ANY in found:
        return ANY
    if len(found) > 1:
        return types.UnionType(tuple(found))
    return next(iter(found), NULL)


def parts_of(kind: Type) -> tuple[Type, ...]:
    """Return the types directly inside a type."""
    match kind:
        case types.ListType():
            return (kind.item,)
        case types.ObjectType():
            return tuple(each.type for each in kind.fields)
        case types.UnionType():
            return kind.members
        case types.ProcessType():
            return kind.input, kind.output
        case types.TriggerHandleType():
            return (kind.event,)
        case _:
            return ()


def references(kind: Type) -> Iterator[types.RefType]:
    """Yield the names in a type, in the order of the text."""
    waiting = [kind]
    while waiting:
        found = waiting.pop()
        if isinstance(found, types.RefType):
            yield found
        waiting.extend(reversed(parts_of(found)))


def bounded(kind: Type, fallback: Type) -> Type:
    """Return an inferred type, or the fallback if it has too many parts.

    A few assignments such as ``x = { a: x, b: x }`` make a type with millions of parts, which share their memory but
    would be compared one by one.
    """
    waiting = [kind]
    for _ in range(_MAX_PARTS):
        if not waiting:
            return kind
        waiting.extend(parts_of(waiting.pop()))
    return fallback
