"""Type values: a JSON schema in a record, and the check of a value against it."""

from __future__ import annotations

from typing import Final

from lash.lang.values.convert import from_json, shown
from lash.lang.values.fault import type_error, value_error
from lash.lang.values.value import List, Record, Resource, Value, equal, kind, make_record
from lash.model.value import JSONObject

TYPE: Final = "$lash_type"
"""The field by which a record is a Type value."""
_NAMES: Final = {
    "string": str,
    "number": float,
    "boolean": bool,
    "array": List,
    "object": Record,
    "null": type(None),
}


def type_value(schema: JSONObject) -> Value:
    """Return the value of `Type {…}`."""
    return make_record({TYPE: from_json(schema)})


def schema_of(value: Value, what: str) -> Record:
    """Return the schema in a Type value, or raise Fault."""
    held = value.fields.get(TYPE) if isinstance(value, Record) else None
    if not isinstance(held, Record):
        raise type_error(
            f"{what} needs a Type value, got {kind(value)}", "write `Type { … }`, or a name that holds one"
        )
    return held


def validate(value: Value, declared: Value) -> Value:
    """Return the value if it is of the type, or raise Fault naming the part that is not."""
    problem = mismatch(value, schema_of(declared, "validate"), "$")
    if problem is not None:
        raise value_error(f"validate: {problem}")
    return value


def mismatch(value: Value, schema: Value, path: str) -> str | None:
    """Return which part of a value does not fit a schema; None if all do. Additional fields are accepted."""
    if not isinstance(schema, Record):
        return None
    fields = schema.fields
    choices = fields.get("anyOf")
    if isinstance(choices, List):
        problems = [mismatch(value, choice, path) for choice in choices.items]
        return None if None in problems else _expected(value, path, " or ".join(_name(each) for each in choices.items))
    wanted = fields.get("type")
    if isinstance(wanted, str) and not _is(value, wanted):
        return _expected(value, path, wanted)
    options = fields.get("enum")
    if isinstance(options, List) and not any(equal(value, option) for option in options.items):
        return f"{path}: expected one of {', '.join(shown(each) for each in options.items)}, got {shown(value)}"
    return _items(value, fields.get("items"), path) or _fields(value, schema, path)


def _items(value: Value, schema: Value, path: str) -> str | None:
    if not isinstance(value, List) or schema is None:
        return None
    problems = (mismatch(item, schema, f"{path}[{index}]") for index, item in enumerate(value.items))
    return next((problem for problem in problems if problem is not None), None)


def _fields(value: Value, schema: Record, path: str) -> str | None:
    declared, required = schema.fields.get("properties"), schema.fields.get("required")
    if not isinstance(value, Record) or not isinstance(declared, Record):
        return None
    needed = required.items if isinstance(required, List) else ()
    missing = next((name for name in needed if name not in value.fields), None)
    if missing is not None:
        return f"{path}: field {shown(missing)} is missing"
    present = ((name, each) for name, each in declared.fields.items() if name in value.fields)
    problems = (mismatch(value.fields[name], each, f"{path}.{name}") for name, each in present)
    return next((problem for problem in problems if problem is not None), None)


def _is(value: Value, name: str) -> bool:
    if name == "integer":
        return isinstance(value, float) and value.is_integer()
    return isinstance(value, _NAMES.get(name, Resource))


def _expected(value: Value, path: str, name: str) -> str:
    return f"{path}: expected {name}, got {kind(value)}"


def _name(schema: Value) -> str:
    wanted = schema.fields.get("type") if isinstance(schema, Record) else None
    return wanted if isinstance(wanted, str) else "another type"
