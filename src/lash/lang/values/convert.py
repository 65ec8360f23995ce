"""Values as numbers, as text and as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import msgspec

from lash.lang.values.fault import Fault, limit_error, type_error, value_error
from lash.lang.values.value import MAX_TEXT, List, Record, Resource, Value, kind, make_list, make_record, make_text
from lash.model.value import JSON

_LEAST_INTEGER: Final = -(2**63)
_BEYOND_INTEGER: Final = 2**64
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MOST_DIGITS: Final = 400
"""No double needs more digits; longer texts only cost time."""


def as_number(value: Value, what: str) -> float:
    """Return a value as a number; null is 0, booleans are 0 and 1, text is parsed. Raise Fault if it is none."""
    match value:
        case float():
            return value
        case bool():
            return 1.0 if value else 0.0
        case None:
            return 0.0
        case str():
            return parse_number(value, what)
    raise type_error(f"{what} needs a number, got {kind(value)}")


def parse_number(text: str, what: str) -> float:
    """Return the number that a text is; the empty text is 0."""
    stripped = text.strip()
    if not stripped:
        return 0.0
    if len(stripped) > _MOST_DIGITS or not _NUMBER.fullmatch(stripped):
        raise type_error(f"{what} needs a number, got the string {shown(text)}")
    return float(stripped)


def as_integer(value: Value, what: str) -> int:
    """Return a value as a finite integer, or raise Fault."""
    number = as_number(value, what)
    if not math.isfinite(number) or not number.is_integer():
        raise value_error(f"{what} needs an integer, got {number_text(number)}")
    return int(number)


def as_text(value: Value, what: str) -> str:
    """Return a scalar as text; raise Fault for lists, records and authorities."""
    if isinstance(value, List | Record | Resource):
        raise type_error(f"{what} needs text, got {kind(value)}")
    return display(value)


def number_text(number: float) -> str:
    """Return the shortest text that is read as the same number, without an exponent."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if number.is_integer():
        return str(int(number)) if _fits(number) else format(Decimal(repr(number)), "f")
    return format(Decimal(repr(number)), "f")


def display(value: Value) -> str:
    """Return a value as text: strings as they are, containers as compact JSON with sorted keys."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return number_text(value)
        case str():
            return value
    pieces, length = [], 0
    for piece in _pieces(value):
        length += len(piece)
        if length > MAX_TEXT:
            raise limit_error(f"a string has at most {MAX_TEXT:,} characters; this {kind(value)} has more as text")
        pieces.append(piece)
    return "".join(pieces)


def _pieces(value: Value) -> Iterator[str]:
    match value:
        case List():
            yield "["
            for index, item in enumerate(value.items):
                yield "," if index else ""
                yield from _pieces(item)
            yield "]"
        case Record():
            yield "{"
            for index, key in enumerate(sorted(value.fields)):
                yield f"{',' if index else ''}{_quoted(key)}:"
                yield from _pieces(value.fields[key])
            yield "}"
        case Resource():
            yield from _pieces(resource_record(value))
        case str():
            yield _quoted(value)
        case float():
            yield number_text(value) if math.isfinite(value) else "null"
        case _:
            yield display(value)


def shown(value: Value) -> str:
    """Return the beginning of a value as it is shown in messages."""
    try:
        text = _quoted(value) if isinstance(value, str) else display(value)
    except Fault:
        return kind(value)
    most = 60
    return text if len(text) <= most else f"{text[:most]}…"


def to_json(value: Value) -> JSON:
    """Return a value as plain JSON: integral numbers are integers, NaN and infinities are null."""
    match value:
        case float():
            return _json_number(value)
        case List():
            return [to_json(item) for item in value.items]
        case Record():
            return {key: to_json(item) for key, item in value.fields.items()}
        case Resource():
            return to_json(resource_record(value))
    return value


def from_json(plain: JSON) -> Value:
    """Return plain JSON as a value: all numbers are doubles, and fields are in the order of their names.

    Raises Fault if it exceeds a limit. An authority in JSON is an ordinary record.
    """
    match plain:
        case None | bool():
            return plain
        case int() | float():
            return _double(plain)
        case str():
            return make_text(plain)
        case list():
            return make_list(from_json(item) for item in plain)
    return make_record({key: from_json(plain[key]) for key in sorted(plain)})


def parse_json(text: str) -> Value:
    """Return the value of a JSON text, or raise Fault."""
    try:
        plain: JSON = msgspec.json.decode(text)
        text.encode()
        return from_json(plain)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise value_error(f"json_parse: the text is not JSON: {error}") from None
    except RecursionError:
        raise limit_error("json_parse: the text is nested too deep") from None


def resource_record(resource: Resource) -> Record:
    """Return the record that stands for an authority in JSON."""
    return make_record({"__resource__": True, "type": resource.resource_type, "alias": resource.alias})


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _json_number(number: float) -> JSON:
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and -(2**63) <= number < 2**63 else number


def _fits(number: float) -> bool:
    return _LEAST_INTEGER <= number < _BEYOND_INTEGER


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
