"""The kinds of occurrences that plugins declare, each by one plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lash.base.codec import encode
from lash.base.limits import check_identifier
from lash.errors import InvalidInput
from lash.model.trigger.trigger import EventCatalogue, EventDeclaration
from lash.plan.process.schema import check_schema
from lash.plan.trigger.trigger import check_source_type


def event_catalogue(declared: Mapping[str, Iterable[EventDeclaration]]) -> EventCatalogue:
    """Return all declarations, given by declarer, or raise InvalidInput naming both who declare the same.

    Neither a key (resource type, alias, event) nor a source type may be declared twice.
    """
    keys: dict[tuple[str, str, str], tuple[str, EventDeclaration]] = {}
    sources: dict[str, str] = {}
    for declarer, declarations in declared.items():
        for declaration in declarations:
            key = _check(declarer, declaration)
            if key in keys:
                raise InvalidInput(
                    f"duplicate trigger occurrence {'/'.join(key)}: declared by {keys[key][0]!r} and {declarer!r}"
                )
            if declaration.source_type in sources:
                raise InvalidInput(
                    f"duplicate trigger source {declaration.source_type!r}:"
                    f" declared by {sources[declaration.source_type]!r} and {declarer!r}"
                )
            sources[declaration.source_type] = declarer
            keys[key] = (declarer, declaration)
    return EventCatalogue(declarations=tuple(keys[key][1] for key in sorted(keys)))


def _check(declarer: str, declaration: EventDeclaration) -> tuple[str, str, str]:
    check_identifier("declarer", declarer)
    if not isinstance(declaration, EventDeclaration):
        raise InvalidInput(f"{declarer!r} declares a {type(declaration).__name__}, not an EventDeclaration")
    what = f"the declaration of {declarer!r}"
    encode(declaration, EventDeclaration, what)
    for name in ("resource_type", "alias", "event"):
        check_identifier(f"{what}: {name}", getattr(declaration, name))
    check_source_type(declaration.source_type)
    check_schema(f"{what}: payload_schema", declaration.payload_schema)
    return (declaration.resource_type, declaration.alias, declaration.event)
