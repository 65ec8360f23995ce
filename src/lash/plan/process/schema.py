"""The check of payloads against JSON schemas.

Two rules beyond the standard: an object schema that lists ``properties``, and does not mention others, refuses others;
and a schema cannot refer to anything outside itself, so that checking a payload never uses the network.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import msgspec

from lash.base.codec import canonical
from lash.errors import InvalidInput
from lash.model.value import JSON, JSONObject

if TYPE_CHECKING:
    import jsonschema_rs

_CACHED_SCHEMAS: Final = 1_024
"""How many compiled schemas are kept; compiling one takes longer than a check."""
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords whose value is an object of schemas."""
_ALTERNATIVES: Final = ("anyOf", "oneOf")
"""Keywords whose value is a list of schemas for the whole object."""
_NESTED: Final = ("items", "prefixItems", "additionalProperties")
"""Keywords whose value is a schema, or a list of schemas, for a part of the value."""


def check_schema(what: str, schema: JSONObject) -> None:
    """Raise InvalidInput unless the JSON object is a usable JSON schema."""
    try:
        _validator(canonical(schema))
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def check_payload(what: str, schema: JSONObject, payload: JSON) -> None:
    """Raise InvalidInput if the payload does not match the schema; the message names the position."""
    if not schema:
        return
    error = next(iter(_validator(canonical(schema)).iter_errors(payload)), None)
    if error is not None:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        raise InvalidInput(f"{what}{path}: {error.message}")


@functools.lru_cache(maxsize=_CACHED_SCHEMAS)
def _validator(schema: bytes) -> jsonschema_rs.Validator:
    # Imported here: most programs that open a storage, such as the CLI, never check a payload.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(_closed(msgspec.json.decode(schema)), retriever=_refuse)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidInput(f"the JSON schema cannot be used: {str(error).splitlines()[0]}") from None


def _refuse(uri: str) -> JSON:
    raise ValueError(f"a schema may not refer to {uri}")


def _closed(schema: JSONObject) -> JSONObject:
    """Refuse unlisted properties wherever an object schema lists some and does not mention others.

    Keywords that see only a part of the object stay as written: ``allOf``, ``if``, ``then``, ``else``, ``not``,
    ``contains``, and alternatives beside ``properties``.
    """
    closed = dict(schema)
    for keyword in _NAMED:
        if isinstance(closed.get(keyword), dict):
            closed[keyword] = {name: _closed_at(each) for name, each in closed[keyword].items()}
    for keyword in _NESTED if "properties" in closed else (*_NESTED, *_ALTERNATIVES):
        if keyword in closed:
            closed[keyword] = _closed_at(closed[keyword])
    if "properties" in closed and "unevaluatedProperties" not in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _closed_at(schema: object) -> object:
    """Close a schema or a list of schemas; return a boolean unchanged."""
    if isinstance(schema, list):
        return [_closed_at(each) for each in schema]
    return _closed(schema) if isinstance(schema, dict) else schema
