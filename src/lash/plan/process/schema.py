"""The check of payloads against JSON schemas.

Two rules beyond the standard: where an object schema lists ``properties`` and does not speak of others, others are
refused; and a schema refers to nothing outside itself, so that checking a payload never reaches for the network.
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
_NAMED: Final = ("properties", "patternProperties", "$defs", "definitions")
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_PLACES: Final = ("items", "prefixItems", "additionalProperties")


def check_schema(what: str, schema: JSONObject) -> None:
    """Raise InvalidInput unless the JSON object is a JSON schema that can be used."""
    try:
        _validator(canonical(schema))
    except InvalidInput as error:
        raise InvalidInput(f"{what}: {error}") from None


def check_payload(what: str, schema: JSONObject, payload: JSON) -> None:
    """Raise InvalidInput if the payload does not fit the schema; the message names the place."""
    if not schema:
        return
    error = next(iter(_validator(canonical(schema)).iter_errors(payload)), None)
    if error is not None:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        raise InvalidInput(f"{what}{place}: {error.message}")


@functools.lru_cache(maxsize=_CACHED_SCHEMAS)
def _validator(schema: bytes) -> jsonschema_rs.Validator:
    # Only here: most programs that open a storage, such as the command, never check a payload.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(_closed(msgspec.json.decode(schema)), retriever=_refuse)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidInput(f"the JSON schema cannot be used: {str(error).splitlines()[0]}") from None


def _refuse(uri: str) -> JSON:
    raise ValueError(f"a schema may not refer to {uri}")


def _closed(schema: JSONObject) -> JSONObject:
    """Refuse unlisted properties wherever an object lists some and does not say otherwise.

    What only adds to a schema or asks about it stays as written, because it sees a part of the object: ``allOf``,
    ``if``, ``then``, ``else``, ``not``, ``contains``, and alternatives beside ``properties``.
    """
    closed = dict(schema)
    for keyword in _NAMED:
        if isinstance(closed.get(keyword), dict):
            closed[keyword] = {name: _closed_at(each) for name, each in closed[keyword].items()}
    for keyword in _PLACES if "properties" in closed else (*_PLACES, *_ALTERNATIVES):
        if keyword in closed:
            closed[keyword] = _closed_at(closed[keyword])
    if "properties" in closed and "unevaluatedProperties" not in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _closed_at(place: object) -> object:
    """Close what stands where a schema, a list of schemas or a mere truth value may stand."""
    if isinstance(place, list):
        return [_closed_at(each) for each in place]
    return _closed(place) if isinstance(place, dict) else place
