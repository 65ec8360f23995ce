"""The check of payloads against JSON schemas.

Two rules beyond the standard: where an object schema lists ``properties`` and does not speak of others, others are
refused; and a schema refers to nothing outside itself, so that checking a payload never reaches for the network.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import jsonschema_rs
import msgspec

from lash.codec import canonical
from lash.errors import InvalidInput
from lash.model.value import JSON, JSONObject

_CACHED_SCHEMAS: Final = 1_024
_OBJECT_KEYWORDS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LIST_KEYWORDS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_KEYWORDS: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def check_schema(what: str, schema: object) -> None:
    """Raise InvalidInput unless the value is a JSON schema that can be used."""
    if not isinstance(schema, dict):
        raise InvalidInput(f"{what} must be a JSON schema, not {type(schema).__name__}")
    _validator(canonical(schema))


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
    try:
        return jsonschema_rs.validator_for(_closed(msgspec.json.decode(schema)), retriever=_refuse)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidInput(f"the JSON schema cannot be used: {str(error).splitlines()[0]}") from None


def _refuse(uri: str) -> JSON:
    raise ValueError(f"a schema may not refer to {uri}")


def _closed(schema: Any) -> Any:
    """Refuse unlisted properties wherever an object lists some and does not say otherwise."""
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    for keyword in _OBJECT_KEYWORDS:
        if isinstance(closed.get(keyword), dict):
            closed[keyword] = {name: _closed(each) for name, each in closed[keyword].items()}
    for keyword in _LIST_KEYWORDS:
        if isinstance(closed.get(keyword), list):
            closed[keyword] = [_closed(each) for each in closed[keyword]]
    for keyword in _SINGLE_KEYWORDS:
        if keyword in closed:
            closed[keyword] = _closed(closed[keyword])
    if "properties" in closed and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed
