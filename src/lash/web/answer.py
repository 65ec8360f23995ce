"""Forms for the answers to waits, made from the schema of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import htpy as h

from lash.model.value import JSON, JSONObject
from lash.web.forms import json_of
from lash.web.show import line

RAW: Final = "value"
"""The field of an answer that is written as JSON."""
_PREFIX: Final = "answer."
_WHOLE: Final = "answer"
_NUMBERS: Final = ("integer", "number")
_SIMPLE: Final = ("boolean", "string", *_NUMBERS)
_MOST_FIELDS: Final = 30


def answer_fields(schema: JSONObject | None) -> tuple[h.Element, ...]:
    """Return the fields of an answer: one for each simple property, or one for JSON if the schema has others."""
    parts = _parts(schema)
    if parts is None:
        shown = "{}" if schema is not None and schema.get("type") == "object" else "true"
        return (_label("answer (JSON)", h.input(type="text", name=RAW, value=shown)),)
    required = _required(schema)
    return tuple(_field(name, part, is_required=name in required or name == _WHOLE) for name, part in parts.items())


def answer_of(fields: Mapping[str, str], schema: JSONObject | None) -> JSON:
    """Return the answer that a form has; the storage checks it against the schema."""
    parts = _parts(schema)
    if parts is None or RAW in fields:
        return json_of(fields.get(RAW, "true"), "the answer")
    if _WHOLE in parts:
        return _value(_WHOLE, fields.get(_WHOLE, ""), parts[_WHOLE])
    required, given = _required(schema), dict[str, JSON]()
    for name, part in parts.items():
        text = fields.get(name, "")
        if text or name in required:
            given[name.removeprefix(_PREFIX)] = _value(name.removeprefix(_PREFIX), text, part)
    return given


def _parts(schema: JSONObject | None) -> dict[str, JSONObject] | None:
    """Return the simple parts of an answer by the names of their fields; None if it needs to be written as JSON."""
    if schema is None:
        return None
    if _is_simple(schema):
        return {_WHOLE: schema}
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or not 0 < len(properties) <= _MOST_FIELDS:
        return None
    parts = {f"{_PREFIX}{name}": part for name, part in properties.items() if isinstance(part, dict)}
    return parts if len(parts) == len(properties) and all(map(_is_simple, parts.values())) else None


def _required(schema: JSONObject | None) -> set[str]:
    names = (schema or {}).get("required")
    return {f"{_PREFIX}{name}" for name in names} if isinstance(names, list) else set()


def _is_simple(schema: JSONObject) -> bool:
    return bool(_choices(schema)) or schema.get("type") in _SIMPLE


def _choices(schema: JSONObject) -> list[str]:
    choices = schema.get("enum")
    texts = [each for each in choices if isinstance(each, str)] if isinstance(choices, list) else []
    return texts if isinstance(choices, list) and len(texts) == len(choices) else []


def _field(name: str, schema: JSONObject, *, is_required: bool) -> h.Element:
    text = schema.get("title") or name.removeprefix(_PREFIX)
    choices = ["true", "false"] if schema.get("type") == "boolean" else _choices(schema)
    if choices:
        offered = choices if is_required else ["", *choices]
        return _label(text, h.select(name=name)[(h.option(value=each)[line(each, 80)] for each in offered)])
    is_number = schema.get("type") in _NUMBERS
    step = "1" if schema.get("type") == "integer" else "any"
    more = {"step": step} if is_number else {}
    return _label(text, h.input(more, type="number" if is_number else "text", name=name, required=is_required))


def _label(text: object, field: h.Node) -> h.Element:
    return h.label(".wide")[h.span[line(str(text), 80)], field]


def _value(name: str, text: str, schema: JSONObject) -> JSON:
    """Return the text of a field as the schema wants it."""
    if schema.get("type") in ("boolean", *_NUMBERS):
        return json_of(text, name)
    return text
