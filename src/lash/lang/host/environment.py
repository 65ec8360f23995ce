"""The environment that a program is linked against, and the part of it that a program requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from lash.lang.host.catalogue import HostCatalogue, Signature
from lash.lang.syntax.types import ANY, BOOL

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which effects a host can carry out, beside operations of its modules."""

    processes: bool = False
    sleep: bool = False
    process_signals: bool = False
    triggers: bool = False

    @classmethod
    def all(cls) -> Abilities:
        return cls(processes=True, sleep=True, process_signals=True, triggers=True)


@dataclass(frozen=True, slots=True)
class LanguageFeatures:
    """Which optional syntax a host accepts."""

    label_annotations: bool = False


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """What a host offers, or what a module requires of a host: both have this shape."""

    resources: HostCatalogue = field(default_factory=HostCatalogue)
    abilities: Abilities = field(default_factory=Abilities)
    features: LanguageFeatures = field(default_factory=LanguageFeatures)

    def missing(self, required: HostEnvironment) -> tuple[str, ...]:
        """Return what a module requires and this host lacks or defines differently; empty if it satisfies all."""
        return tuple(_missing(self, required))

    def satisfies(self, required: HostEnvironment) -> bool:
        """Return whether every requirement is present and equal. What else the host has does not matter."""
        return not self.missing(required)


HostRequirements = HostEnvironment
"""The part of an environment that a module uses."""

TRIGGERS = "triggers"
"""The module with the operations on triggers, in a host with that ability."""


def with_triggers(catalogue: HostCatalogue) -> HostCatalogue:
    """Add the module ``triggers`` with its operations."""
    for operation in ("register", "list", "cancel"):
        signature = Signature(ANY, BOOL if operation == "cancel" else ANY)
        catalogue = catalogue.with_operation(TRIGGERS, operation, f"{TRIGGERS}.{operation}", signature)
    return catalogue


def full_environment(catalogue: HostCatalogue | None = None) -> HostEnvironment:
    """Return an environment with all abilities and features, the module ``triggers`` included."""
    resources = with_triggers(catalogue or HostCatalogue())
    return HostEnvironment(resources, Abilities.all(), LanguageFeatures(label_annotations=True))


def _missing(host: HostEnvironment, required: HostEnvironment) -> Iterator[str]:
    for each in fields(Abilities):
        if getattr(required.abilities, each.name) and not getattr(host.abilities, each.name):
            yield f"ability {each.name}"
    if required.features.label_annotations and not host.features.label_annotations:
        yield "language feature label_annotations"
    yield from _missing_modules(host.resources, required.resources)
    yield from _different("data type", host.resources.data_types, required.resources.data_types)
    yield from _different("constructor", host.resources.constructors, required.resources.constructors)
    yield from _different("trigger source", host.resources.trigger_sources, required.resources.trigger_sources)


def _missing_modules(host: HostCatalogue, required: HostCatalogue) -> Iterator[str]:
    for alias, needed in sorted(required.modules.items()):
        present = host.modules.get(alias)
        if present is None or present.resource_type != needed.resource_type:
            yield f"module {alias} of type {needed.resource_type}"
        else:
            yield from _different(f"operation {alias}:", present.operations, needed.operations)
    for name, signatures in sorted(required.resource_types.items()):
        offered = host.resource_types.get(name)
        if offered is None:
            yield f"resource type {name}"
        else:
            yield from _different(f"signature of {name}:", offered, signatures)


def _different(what: str, host: Mapping[str, T], required: Mapping[str, T]) -> Iterator[str]:
    for name, needed in sorted(required.items()):
        if name not in host:
            yield f"{what} {name}"
        elif host[name] != needed:
            yield f"{what} {name} (defined differently)"
