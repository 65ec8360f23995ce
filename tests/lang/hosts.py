"""A host for the tests of the linker."""

from __future__ import annotations

from lash.lang.host.catalogue import HostCatalogue, Signature
from lash.lang.host.environment import Abilities, HostEnvironment, full_environment
from lash.lang.link import LinkedModule, link
from lash.lang.parse import parse
from lash.lang.syntax.types import ANY, INT, STR, ObjectField, ObjectType, RefType

ALL = HostEnvironment(abilities=Abilities.all())
"""A host without modules, with all abilities."""


def record(**fields: object) -> ObjectType:
    """Return an object type; each value is a type."""
    return ObjectType(tuple(ObjectField(name, kind) for name, kind in fields.items()))  # type: ignore[arg-type]


def catalogue() -> HostCatalogue:
    return (
        HostCatalogue()
        .with_operation("web", "fetch", "tool-1", Signature(record(url=STR), record(text=STR, status=INT)))
        .with_operation("mail.work", "send", "tool-2", resource_type="Mail")
        .with_operation("mail.home", "send", "tool-3", resource_type="Mail")
        .with_operation("disk", "read", "tool-4", Signature(STR, STR))
        .with_data_type("clock.Tick", record(at=STR))
        .with_constructor("clock.Every", "clock.Schedule", record(cron=STR), RefType("clock.Schedule"))
        .with_trigger_source("clock.Schedule", "clock.Tick")
        .with_constructor("paint.Colour", "paint.Shade", ANY, RefType("paint.Shade"))
    )


HOST = full_environment(catalogue())


def linked(source: str, environment: HostEnvironment = HOST) -> LinkedModule:
    return link(parse(source), environment, source=source)
