"""The builtins of lashlang: one table, from which the language reference is generated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lash.lang.values import text
from lash.lang.values.convert import as_integer, as_number, display, number_text, parse_json
from lash.lang.values.fault import limit_error, type_error, value_error
from lash.lang.values.schema import validate
from lash.lang.values.template import fill
from lash.lang.values.value import MAX_ITEMS, List, Record, Value, equal, kind, make_list


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the language. ``most`` is None if it takes any number of arguments from ``least`` on."""

    name: str
    signature: str
    help: str
    function: Callable[..., Value]
    least: int
    most: int | None
    is_cheap: bool = False
    """Whether its cost does not grow with its arguments."""

    def call(self, arguments: Sequence[Value]) -> Value:
        """Return the result; raise Fault if the number or the kinds of the arguments are wrong."""
        if not self.accepts(len(arguments)):
            raise type_error(f"{self.name} takes {self.arity}, got {len(arguments)}", f"write {self.signature}")
        return self.function(*arguments)

    def accepts(self, count: int) -> bool:
        """Return whether it takes this number of arguments."""
        return self.least <= count and (self.most is None or count <= self.most)

    @property
    def arity(self) -> str:
        """How many arguments it takes, as a text."""
        if self.most is None:
            return f"at least {self.least} argument"
        if self.least == self.most:
            return f"{self.least} argument{'s' if self.least > 1 else ''}"
        return f"{self.least} to {self.most} arguments"


def _len(value: Value) -> Value:
    match value:
        case None:
            return 0.0
        case str():
            return float(len(value))
        case List():
            return float(len(value.items))
        case Record():
            return float(len(value.fields))
    raise type_error(f"len needs a string, a list or a record, got {kind(value)}")


def _empty(value: Value) -> Value:
    match value:
        case None:
            return True
        case str():
            return not value
        case List():
            return not value.items
        case Record():
            return not value.fields
    raise type_error(f"empty needs a string, a list or a record, got {kind(value)}")


def _keys(value: Value) -> Value:
    return make_list(_record(value, "keys").fields)


def _values(value: Value) -> Value:
    return make_list(_record(value, "values").fields.values())


def _record(value: Value, what: str) -> Record:
    if value is None:
        return Record({}, 0, 1)
    if isinstance(value, Record):
        return value
    raise type_error(f"{what} needs a record, got {kind(value)}")


def _contains(value: Value, part: Value) -> Value:
    match value:
        case None:
            return False
        case str():
            return _needle(part) in value
        case List():
            return any(equal(item, part) for item in value.items)
        case Record():
            return display(part) in value.fields
    raise type_error(f"contains needs a string, a list or a record, got {kind(value)}")


def _needle(part: Value) -> str:
    if isinstance(part, List | Record):
        raise type_error(f"contains needs text to look for in a string, got {kind(part)}")
    return display(part)


def _slice(value: Value, begin: Value, end: Value) -> Value:
    first, last = (None if bound is None else as_integer(bound, "slice") for bound in (begin, end))
    if isinstance(value, str):
        return value[first:last]
    if isinstance(value, List):
        return make_list(value.items[first:last])
    raise type_error(f"slice needs a string or a list, got {kind(value)}")


def _range(*bounds: Value) -> Value:
    numbers = [as_integer(bound, "range") for bound in bounds]
    if len(numbers) == 3 and numbers[2] == 0:  # noqa: PLR2004 (the third argument is the step)
        raise value_error("range needs a step that is not 0")
    whole = range(*numbers)
    # Beyond the integers of the platform `len` fails.
    length = max(0, (whole.stop - whole.start + whole.step - (1 if whole.step > 0 else -1)) // whole.step)
    if length > MAX_ITEMS:
        raise limit_error(f"range makes at most {MAX_ITEMS:,} numbers")
    return make_list(float(number) for number in whole)


def _floor_div(left: Value, right: Value) -> Value:
    return _quotient(left, right, "floor_div", up=False)


def _ceil_div(left: Value, right: Value) -> Value:
    return _quotient(left, right, "ceil_div", up=True)


def _quotient(left: Value, right: Value, what: str, *, up: bool) -> Value:
    dividend, divisor = as_integer(left, what), as_integer(right, what)
    if divisor == 0:
        raise value_error(f"{what} needs a divisor that is not 0")
    return float(-(-dividend // divisor) if up else dividend // divisor)


def _push(items: Value, item: Value) -> Value:
    if not isinstance(items, List):
        raise type_error(f"push needs a list, got {kind(items)}")
    return make_list((*items.items, item))


def _to_int(value: Value) -> Value:
    number = as_number(value, "to_int")
    if not math.isfinite(number):
        raise value_error(f"to_int needs a finite number, got {number_text(number)}")
    return float(math.trunc(number))


def _json_parse(value: Value) -> Value:
    if not isinstance(value, str):
        raise type_error(f"json_parse needs a string, got {kind(value)}")
    return parse_json(value)


def _format(template: Value, *arguments: Value) -> Value:
    return fill(template, arguments)


def _builtin(signature: str, function: Callable[..., Any], help_text: str, **options: bool) -> Builtin:
    """Return the builtin of a signature, such as ``find(text, part, start?)``."""
    name, _, rest = signature.partition("(")
    names = [each.strip() for each in rest.rstrip(")").split(",")]
    least = sum(not each.endswith("?") and each != "…" for each in names)
    most = None if "…" in names else len(names)
    return Builtin(name, signature, help_text, function, least, most, **options)


_TABLE: Final = (
    _builtin("len(x)", _len, "Characters, items or fields; 0 for null.", is_cheap=True),
    _builtin("empty(x)", _empty, "Whether a string, list or record has nothing in it; true for null.", is_cheap=True),
    _builtin("keys(record)", _keys, "The names of the fields in order; an empty list for null."),
    _builtin("values(record)", _values, "The values of the fields in order; an empty list for null."),
    _builtin("contains(x, part)", _contains, "Whether a string has a text, a list an item, or a record a field."),
    _builtin("starts_with(text, beginning)", text.starts_with, "Whether a text begins with another."),
    _builtin("ends_with(text, end)", text.ends_with, "Whether a text ends with another."),
    _builtin("trim(text)", text.trim, "The text without white space at both ends."),
    _builtin("split(text, separator)", text.split, "The parts of a text as a list."),
    _builtin("join(list, separator)", text.join, "The items of a list as one text; items are scalars."),
    _builtin("find(text, part, start?)", text.find, "The index of the first occurrence, or null."),
    _builtin("grep_text(text, part)", text.grep_text, "The lines with a text: `{line, text, match, start, end}` each."),
    _builtin("slice(x, begin, end)", _slice, "A part of a string or list; null bounds are the ends."),
    _builtin("range(begin_or_end, end?, step?)", _range, "The integers up to an end, which is not among them."),
    _builtin("floor_div(a, b)", _floor_div, "The quotient of two integers, rounded down."),
    _builtin("ceil_div(a, b)", _ceil_div, "The quotient of two integers, rounded up."),
    _builtin("push(list, item)", _push, "A new list with one more item."),
    _builtin("to_string(x)", display, "The text of a value; containers as JSON with sorted keys."),
    _builtin("to_int(x)", _to_int, "A number without its fraction."),
    _builtin("to_float(x)", lambda value: as_number(value, "to_float"), "A number."),
    _builtin("json_parse(text)", _json_parse, "The value of a JSON text; the fields of its objects are sorted."),
    _builtin("format(template, …)", _format, "The template with `{}` or `{0}` replaced by its arguments."),
    _builtin("validate(x, type)", validate, "The value if it is of a `Type`; the program fails if it is not."),
)

BUILTINS: Final = {each.name: each for each in _TABLE}
"""All builtins by name."""
