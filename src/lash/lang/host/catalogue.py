"""The catalogue of a host: its modules, their operations, and the types of both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from lash.errors import ConfigError
from lash.lang.syntax import types
from lash.lang.syntax.types import ANY, ObjectType, Type

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ModuleInstance:
    """A module under a dotted path. ``operations`` has the host's own name of each operation."""

    path: tuple[str, ...]
    resource_type: str
    alias: str
    operations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operation takes and returns."""

    input: Type = ANY
    output: Type = ANY


@dataclass(frozen=True, slots=True)
class ValueConstructor:
    """A pure function of the host that makes an opaque value."""

    path: tuple[str, ...]
    type_name: str
    input: Type
    output: Type


@dataclass(frozen=True, slots=True)
class HostCatalogue:
    """Everything that a program can name. Each ``with_`` method returns a larger catalogue.

    Modules and constructors are by dotted path, operations of a resource type by their names, trigger sources by the
    type of their values. All modules of one resource type share the signatures of its operations.
    """

    modules: Mapping[str, ModuleInstance] = field(default_factory=dict)
    resource_types: Mapping[str, Mapping[str, Signature]] = field(default_factory=dict)
    data_types: Mapping[str, ObjectType] = field(default_factory=dict)
    constructors: Mapping[str, ValueConstructor] = field(default_factory=dict)
    trigger_sources: Mapping[str, str] = field(default_factory=dict)

    def with_module(self, path: str, resource_type: str | None = None) -> HostCatalogue:
        """Add a module without operations; its type defaults to the last name of the path, capitalised.

        Raises ConfigError if the path has another type already.
        """
        names = _dotted("module path", path)
        kind = resource_type or names[-1][:1].upper() + names[-1][1:]
        _dotted("resource type", kind)
        present = self.modules.get(path)
        if present is not None and present.resource_type != kind:
            raise ConfigError(f"module {path!r} has type {present.resource_type!r} already, not {kind!r}")
        module = present or ModuleInstance(names, kind, path)
        resource_types = {**self.resource_types, kind: self.resource_types.get(kind, {})}
        return replace(self, modules={**self.modules, path: module}, resource_types=resource_types)

    def with_operation(
        self,
        path: str,
        operation: str,
        host_operation: str,
        signature: Signature | None = None,
        resource_type: str | None = None,
    ) -> HostCatalogue:
        """Add an operation to a module, and the module if it is new.

        Raises ConfigError if the operation is bound to another one of the host, or its type has another signature.
        """
        _name("operation", operation)
        if resource_type is None and path in self.modules:
            resource_type = self.modules[path].resource_type
        base = self.with_module(path, resource_type)
        module = base.modules[path]
        operations = _added(f"operation {path}.{operation}", module.operations, operation, host_operation)
        signatures = _added(
            f"signature of {module.resource_type}.{operation}",
            base.resource_types[module.resource_type],
            operation,
            signature or Signature(),
        )
        return replace(
            base,
            modules={**base.modules, path: replace(module, operations=operations)},
            resource_types={**base.resource_types, module.resource_type: signatures},
        )

    def with_data_type(self, name: str, shape: ObjectType) -> HostCatalogue:
        """Add a named type. Its name has at least two parts, and it names no other type.

        Raises ConfigError if the name has another shape already.
        """
        if len(_dotted("data type", name)) < 2:  # noqa: PLR2004 (module and name)
            raise ConfigError(f"data type {name!r}: expected a dotted name such as 'mail.Message'")
        _check_plain(name, shape)
        return replace(self, data_types=_added(f"data type {name}", self.data_types, name, shape))

    def with_constructor(self, path: str, type_name: str, input_type: Type, output_type: Type) -> HostCatalogue:
        """Add a value constructor. Raises ConfigError if the path has another one already."""
        constructor = ValueConstructor(_dotted("constructor", path), type_name, input_type, output_type)
        return replace(self, constructors=_added(f"constructor {path}", self.constructors, path, constructor))

    def with_trigger_source(self, type_name: str, event: str) -> HostCatalogue:
        """Make values of a type a source of events of a named type.

        Raises ConfigError if the source has another event already, or the event is unknown.
        """
        if event not in self.data_types:
            raise ConfigError(f"unknown data type {event!r}; add it with with_data_type first")
        sources = _added(f"trigger source {type_name}", self.trigger_sources, type_name, event)
        return replace(self, trigger_sources=sources)


def _added(what: str, present: Mapping[str, T], key: str, value: T) -> dict[str, T]:
    if present.get(key, value) != value:
        raise ConfigError(f"{what} is defined already, and differently")
    return {**present, key: value}


def _name(what: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(f"{what}: expected a name of ASCII letters, digits and '_', got {text!r}")
    return text


def _dotted(what: str, text: str) -> tuple[str, ...]:
    return tuple(_name(what, part) for part in text.split("."))


def _check_plain(name: str, kind: Type) -> None:
    """Refuse what a data type must not contain: other names, processes, repeated fields or values."""
    match kind:
        case types.RefType() | types.ProcessType() | types.TriggerHandleType():
            raise ConfigError(f"data type {name!r} must not contain names, processes or trigger handles")
        case types.ListType():
            _check_plain(name, kind.item)
        case types.UnionType():
            for member in kind.members:
                _check_plain(name, member)
        case types.EnumType() if len(set(kind.values)) < len(kind.values):
            raise ConfigError(f"data type {name!r} repeats a value of an enum")
        case types.ObjectType():
            if len({each.name for each in kind.fields}) < len(kind.fields):
                raise ConfigError(f"data type {name!r} repeats a field")
            for each in kind.fields:
                _check_plain(name, each.type)
