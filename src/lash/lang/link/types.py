"""What types mean: names resolved, and which values fit where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lash.lang.host.catalogue import HostCatalogue
from lash.lang.syntax import types
from lash.lang.syntax.types import ANY, NULL, Type


@dataclass(frozen=True, slots=True)
class TypeScope:
    """The types that a module can name: its own, and those of its host."""

    declared: Mapping[str, Type]
    catalogue: HostCatalogue

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
        source, target = self.resolve(source), self.resolve(target)
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
        present = {field.name: field for field in source.fields}
        for field in target.fields:
            found = present.get(field.name)
            if found is None or (found.optional and not field.optional):
                if found is not None or not field.optional:
                    return False
            elif not self.assignable(found.type, field.type, lenient=lenient):
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


def references(kind: Type) -> Iterator[types.RefType]:
    """Yield the names in a type."""
    match kind:
        case types.RefType():
            yield kind
        case types.ListType():
            yield from references(kind.item)
        case types.ObjectType():
            for field in kind.fields:
                yield from references(field.type)
        case types.UnionType():
            for member in kind.members:
                yield from references(member)
        case types.ProcessType():
            yield from references(kind.input)
            yield from references(kind.output)
        case types.TriggerHandleType():
            yield from references(kind.event)
