"""Collects what a module requires of its host, and nothing else: unrelated tools do not change its ref."""

from __future__ import annotations

from collections.abc import Container

from lash.lang.host.catalogue import HostCatalogue, ModuleInstance, Signature, ValueConstructor
from lash.lang.host.environment import Abilities, HostRequirements, LanguageFeatures
from lash.lang.link.types import references
from lash.lang.syntax.types import ObjectType, Type


class Requirements:
    """The requirements of a module that is being linked."""

    def __init__(self, catalogue: HostCatalogue) -> None:
        self._catalogue = catalogue
        self.abilities: set[str] = set()
        self.labels = False
        self._modules: dict[str, dict[str, str]] = {}
        self._resource_types: dict[str, dict[str, Signature]] = {}
        self._data_types: dict[str, ObjectType] = {}
        self._constructors: dict[str, ValueConstructor] = {}
        self._trigger_sources: dict[str, str] = {}

    def module(self, alias: str) -> None:
        self._modules.setdefault(alias, {})

    def operation(self, resource_type: str, operation: str, alias: str | None) -> None:
        """Require an operation of a type and, if the receiver is a module, of that module."""
        signature = self._catalogue.resource_types[resource_type][operation]
        self._resource_types.setdefault(resource_type, {})[operation] = signature
        self.types(signature.input)
        self.types(signature.output)
        if alias is not None:
            host_operation = self._catalogue.modules[alias].operations[operation]
            self._modules.setdefault(alias, {})[operation] = host_operation

    def types(self, kind: Type, declared: Container[str] = ()) -> None:
        """Require the types of the host that a type names; names that the module declares are its own."""
        for reference in references(kind):
            if reference.name in declared:
                continue
            if reference.name in self._catalogue.data_types:
                self._data_types[reference.name] = self._catalogue.data_types[reference.name]
            elif reference.name in self._catalogue.resource_types:
                self._resource_types.setdefault(reference.name, {})

    def constructor(self, path: str) -> None:
        constructor = self._catalogue.constructors[path]
        self._constructors[path] = constructor
        self.types(constructor.input)

    def trigger_source(self, type_name: str) -> None:
        event = self._catalogue.trigger_sources[type_name]
        self._trigger_sources[type_name] = event
        self._data_types[event] = self._catalogue.data_types[event]

    def collected(self) -> HostRequirements:
        """Return the requirements so far."""
        modules = {
            alias: ModuleInstance(module.path, module.resource_type, alias, operations)
            for alias, operations in self._modules.items()
            for module in (self._catalogue.modules[alias],)
        }
        catalogue = HostCatalogue(
            modules, self._resource_types, self._data_types, self._constructors, self._trigger_sources
        )
        abilities = Abilities(**dict.fromkeys(self.abilities, True))
        return HostRequirements(catalogue, abilities, LanguageFeatures(label_annotations=self.labels))
