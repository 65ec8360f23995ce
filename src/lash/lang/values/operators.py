"""Operators, and reading and writing parts of values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lash.lang.values.convert import as_integer, as_number, display, number_text, shown
from lash.lang.values.fault import type_error, value_error
from lash.lang.values.value import List, Record, Value, equal, kind, make_list, make_record, make_text


def negate(value: Value) -> Value:
    return -as_number(value, "`-`")


def add(left: Value, right: Value) -> Value:
    """Add numbers; join text with the text of the other side; join two lists."""
    if isinstance(left, float) and isinstance(right, float):
        return left + right
    if isinstance(left, str) or isinstance(right, str):
        return make_text(display(left) + display(right))
    if isinstance(left, List) and isinstance(right, List):
        return make_list((*left.items, *right.items))
    return as_number(left, "`+`") + as_number(right, "`+`")


def subtract(left: Value, right: Value) -> Value:
    return as_number(left, "`-`") - as_number(right, "`-`")


def multiply(left: Value, right: Value) -> Value:
    return as_number(left, "`*`") * as_number(right, "`*`")


def divide(left: Value, right: Value) -> Value:
    """Divide; division by zero is an infinity or NaN, never an error."""
    dividend, divisor = as_number(left, "`/`"), as_number(right, "`/`")
    if divisor != 0:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def modulo(left: Value, right: Value) -> Value:
    """Return the remainder with the sign of the dividend; NaN if there is none."""
    dividend, divisor = as_number(left, "`%`"), as_number(right, "`%`")
    if divisor == 0 or math.isinf(dividend):
        return math.nan
    return math.fmod(dividend, divisor)


def not_equal(left: Value, right: Value) -> Value:
    return not equal(left, right)


def less(left: Value, right: Value) -> Value:
    return left < right if isinstance(left, str) and isinstance(right, str) else _numbers(left, right, "`<`", -1)


def less_equal(left: Value, right: Value) -> Value:
    if isinstance(left, str) and isinstance(right, str):
        return left <= right
    return as_number(left, "`<=`") <= as_number(right, "`<=`")


def greater(left: Value, right: Value) -> Value:
    return left > right if isinstance(left, str) and isinstance(right, str) else _numbers(left, right, "`>`", 1)


def greater_equal(left: Value, right: Value) -> Value:
    if isinstance(left, str) and isinstance(right, str):
        return left >= right
    return as_number(left, "`>=`") >= as_number(right, "`>=`")


def _numbers(left: Value, right: Value, what: str, sign: int) -> bool:
    one, other = as_number(left, what), as_number(right, what)
    return one < other if sign < 0 else one > other


def read_field(value: Value, name: str) -> Value:
    """Return a field of a record; null if the record has none, or is null."""
    if isinstance(value, Record):
        return value.fields.get(name)
    if value is None:
        return None
    raise type_error(f"`.{name}` needs a record, got {kind(value)}")


def read_index(value: Value, index: Value) -> Value:
    """Return an item, a character or a field; null if there is none, or the value is null."""
    match value:
        case None:
            return None
        case Record():
            return value.fields.get(display(index))
        case List():
            place = _place(index, len(value.items))
            return None if place is None else value.items[place]
        case str():
            place = _place(index, len(value))
            return None if place is None else value[place]
    raise type_error(f"`[…]` needs a list, a record or a string, got {kind(value)}")


def _place(index: Value, length: int) -> int | None:
    """Return the position that an index means, negative ones from the end; None if it is out of range."""
    place = as_integer(index, "an index")
    place = place + length if place < 0 else place
    return place if 0 <= place < length else None


def write_path(value: Value, path: Sequence[Value], new: Value) -> Value:
    """Return a copy of a value in which the place of a path has another value."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    match value:
        case Record():
            key = display(first)
            if rest and key not in value.fields:
                raise value_error(f"cannot assign below the missing field `{key}`", "assign a record to it first")
            inner = write_path(value.fields.get(key), rest, new)
            return make_record({**value.fields, key: inner})
        case List():
            place = _place(first, len(value.items))
            if place is None:
                raise value_error(f"index {shown(first)} is not in this list of {len(value.items)}", "use push")
            items = list(value.items)
            items[place] = write_path(items[place], rest, new)
            return make_list(items)
    raise type_error(f"cannot assign to a part of a {kind(value)}")


def copied(value: Value, path: Sequence[Value]) -> int:
    """Return how many items and fields an assignment to a path copies."""
    total = 0
    for step in path:
        if isinstance(value, Record):
            total += len(value.fields)
            value = value.fields.get(display(step))
        elif isinstance(value, List):
            total += len(value.items)
            place = _place(step, len(value.items))
            value = None if place is None else value.items[place]
    return total


def index_text(value: Value) -> str:
    """Return an index as it is shown in a path."""
    return number_text(value) if isinstance(value, float) else shown(value)
