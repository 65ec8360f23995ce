"""Sources of events that programs can react to: the clock, and what the application emits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lash.errors import ConfigError
from lash.lang.host.catalogue import HostCatalogue
from lash.lang.process.schemas import type_of_schema
from lash.lang.syntax.types import STR, ObjectField, ObjectType, RefType
from lash.model.trigger.schedule import CRON_SOURCE_TYPE
from lash.model.value import JSONObject
from lash.runtime.steps.values import json_schema

CLOCK: Final = "clock.Every"
"""The constructor of a schedule, and the type of what it makes."""
_TICK: Final = "clock.Tick"
_CLOCK_INPUT: Final = ObjectType((ObjectField("cron", STR), ObjectField("time_zone", STR, optional=True)))
_EVENT_INPUT: Final = ObjectType((ObjectField("key", STR, optional=True),))


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of events: its name in the storage, and the schema of its payloads."""

    source_type: str
    payload_schema: JSONObject


class Sources:
    """The sources of a host by the type of the value that a program makes of one.

    ``events`` has the types of payloads by source type: ``{"github.push": Push}`` lets programs write
    ``github.Push({})`` for all of them, or ``github.Push({key: "lash"})`` for those of one source key.
    """

    def __init__(self, events: Mapping[str, object]) -> None:
        tick: JSONObject = {"type": "object", "properties": {"scheduled_at": {"type": "string"}}}
        self._sources = {CLOCK: Source(CRON_SOURCE_TYPE, tick)}
        self._events: dict[str, ObjectType] = {}
        for source_type, declared in events.items():
            head, dot, last = source_type.rpartition(".")
            if not dot or not last:
                raise ConfigError(f"expected a source type with a dot, such as 'github.push', got {source_type!r}")
            name, schema = f"{head}.{last[:1].upper()}{last[1:]}", json_schema(declared)
            shape = type_of_schema(schema)
            if not isinstance(shape, ObjectType):
                raise ConfigError(f"events of {source_type!r}: expected a type with fields, got {declared!r:.80}")
            self._sources[name], self._events[name] = Source(source_type, schema), shape

    def get(self, type_name: str) -> Source | None:
        """Return the source that values of a type stand for."""
        return self._sources.get(type_name)

    def add_to(self, catalogue: HostCatalogue) -> HostCatalogue:
        """Return the catalogue with the constructors of the sources and the types of their events."""
        tick = ObjectType((ObjectField("scheduled_at", STR),))
        catalogue = catalogue.with_data_type(_TICK, tick).with_constructor(CLOCK, CLOCK, _CLOCK_INPUT, RefType(CLOCK))
        catalogue = catalogue.with_trigger_source(CLOCK, _TICK)
        for name, shape in self._events.items():
            event = f"{name}Event"
            catalogue = catalogue.with_data_type(event, shape)
            catalogue = catalogue.with_constructor(name, name, _EVENT_INPUT, RefType(name))
            catalogue = catalogue.with_trigger_source(name, event)
        return catalogue
