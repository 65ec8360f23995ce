"""Arguments and results as JSON, and back to their declared types."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import MAX_INTEGER, MIN_INTEGER
from lash.base.shapes import convert_declared
from lash.errors import InvalidInput
from lash.model.value import JSON, Value

UNTYPED: Final = object()
"""Stands for a type that was not declared."""
_KEPT_FUNCTIONS: Final = 1_024
_PLAIN: Final = (type(None), bool, int, float, str, list, dict)


class _Box(Value, frozen=True, kw_only=True):
    value: JSON = None


@runtime_checkable
class _PydanticModel(Protocol):
    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> dict[str, Any]: ...


class _Adapter(Protocol):
    def validate_json(self, data: bytes) -> object: ...

    def json_schema(self) -> dict[str, Any]: ...


def to_json(value: object, declared: object, what: str) -> JSON:
    """Return the JSON form of a value, or raise InvalidInput if it would not come back as the declared type."""
    try:
        plain = _plain(value, what)
        back = plain if declared is UNTYPED else _convert(plain, declared)
    except InvalidInput:
        raise
    except (TypeError, ValueError, RecursionError, OverflowError, NotImplementedError) as error:
        raise InvalidInput(f"{what} cannot be stored: {error}") from None
    if declared is UNTYPED and not _is_plain(value):
        raise InvalidInput(_why_not_plain(value, what))
    # After a crash the code must see the same value as without one.
    if declared is not UNTYPED and not _is_faithful(value, back):
        raise InvalidInput(
            f"{what} is of type {type(value).__name__} and would not be read back as what it is: declare its parts"
        )
    return plain


def from_json(plain: JSON, declared: object, what: str) -> Any:  # noqa: ANN401 (the declared type is known at run time)
    """Return the value of the declared type, or raise InvalidInput saying where it does not fit."""
    if declared is UNTYPED:
        return plain
    try:
        return _convert(plain, declared)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"{what} does not fit its declared type: {error}") from None


@functools.lru_cache(maxsize=4_096)
def _type_trouble(declared: object) -> str | None:
    if _adapter(declared) is not None:
        return None
    try:
        msgspec.json.schema(declared, schema_hook=_schema_of_other)
    except (TypeError, NotImplementedError) as error:
        return str(error).splitlines()[-1]
    return None


@functools.lru_cache(maxsize=4_096)
def _adapter(declared: object) -> _Adapter | None:
    """Return pydantic's own reader of a type that has several of its models in a union, which msgspec cannot read."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not _has_model(declared):
        return None
    try:
        msgspec.json.schema(declared, schema_hook=_schema_of_other)
    except (TypeError, NotImplementedError):
        with contextlib.suppress(TypeError, pydantic.errors.PydanticUserError):
            adapter: _Adapter = pydantic.TypeAdapter(declared)
            return adapter
    return None


def _has_model(declared: object) -> bool:
    return hasattr(declared, "model_validate_json") or any(map(_has_model, get_args(declared)))


def _adapter_of(declared: object) -> _Adapter | None:
    try:
        return _adapter(declared)
    except TypeError:
        # It cannot be a key of a cache, as some annotations cannot.
        return None


def check_type(declared: object, what: str) -> None:
    """Raise InvalidInput if no value of a declared type could ever be read back."""
    if declared is UNTYPED:
        return
    try:
        trouble = _type_trouble(declared)
    except TypeError:
        # It cannot be a key of a cache, as some annotations cannot.
        trouble = None
    if trouble is not None:
        raise InvalidInput(
            f"{what} cannot be stored: {trouble}; use plain JSON, a dataclass, a Struct or a pydantic model"
        )


def json_schema(declared: object) -> dict[str, Any]:
    """Return the JSON schema of a type, or raise TypeError."""
    if isinstance(declared, type) and hasattr(declared, "model_json_schema"):
        return _schema_of_other(declared)
    adapter = _adapter_of(declared)
    return adapter.json_schema() if adapter is not None else msgspec.json.schema(declared, schema_hook=_schema_of_other)


def result_type(function: Callable[..., object]) -> object:
    """Return the declared result type of a function, of the awaited value if it is async, or UNTYPED."""
    declared = _hints(function).get("return", UNTYPED)
    if get_origin(declared) in (Awaitable, Coroutine):
        return get_args(declared)[-1]
    return declared


def parameter_types(function: Callable[..., object], *, skip: int) -> dict[str, object]:
    """Return the parameters after the first ``skip`` ones by name, each with its declared type or UNTYPED."""
    hints = _hints(function)
    names = list(_signature(function).parameters)[skip:]
    return {name: hints.get(name, UNTYPED) for name in names}


def bind_arguments(
    function: Callable[..., object], what: str, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, JSON]:
    """Return the arguments after the context, by name and as JSON, or raise InvalidInput if they do not fit."""
    try:
        bound = _signature_behind_context(function).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInput(f"{what}: {error}") from None
    kinds = parameter_types(function, skip=1)
    return {name: to_json(value, kinds[name], f"{what}: argument {name!r}") for name, value in bound.arguments.items()}


def read_arguments(function: Callable[..., object], what: str, stored: Mapping[str, JSON]) -> dict[str, object]:
    """Return stored arguments as what the function takes."""
    kinds = parameter_types(function, skip=1)
    unknown = sorted(set(stored) - set(kinds))
    if unknown:
        raise InvalidInput(f"{what} takes no argument {unknown[0]!r}")
    arguments = {name: from_json(value, kinds[name], f"{what}: argument {name!r}") for name, value in stored.items()}
    try:
        _signature_behind_context(function).bind(**arguments)
    except TypeError as error:
        raise InvalidInput(f"{what}: {error}") from None
    return arguments


def describe(args: tuple[object, ...], kwargs: Mapping[str, object], *, limit: int) -> JSON:
    """Return the arguments of a step as they take part in its identity.

    Small ones are kept as they are, so that a mismatch can show them; large ones as a hash. What JSON cannot carry,
    such as a client object, counts by the name of its type alone.
    """

    def described(value: object) -> JSON:
        try:
            # Sets have no order, which must not make a difference between two runs.
            plain = _plain(value, "argument", order="deterministic")
            text = canonical(plain)
        except (TypeError, ValueError, RecursionError, OverflowError, NotImplementedError, InvalidInput):
            return {"type": type(value).__qualname__}
        return plain if len(text) <= limit else {"sha256": content_hash(text), "bytes": len(text)}

    parts: dict[str, JSON] = {}
    if args:
        parts["args"] = [described(value) for value in args]
    if kwargs:
        parts["kwargs"] = {name: described(value) for name, value in sorted(kwargs.items())}
    return parts or None


def _plain(value: object, what: str, order: Literal["deterministic"] | None = None) -> JSON:
    """Return the value as JSON reads it back, which has lists where there were tuples."""
    if value is None or type(value) is bool:
        return value
    if type(value) is int and MIN_INTEGER <= value <= MAX_INTEGER:
        return value
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"{what} contains a lone surrogate") from None
        return value
    box = _Box(value=msgspec.to_builtins(value, enc_hook=_encode_other, str_keys=True, order=order))
    return decode(encode(box, _Box, what), _Box, what).value


@functools.lru_cache(maxsize=_KEPT_FUNCTIONS)
def _signature(function: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(function)


@functools.lru_cache(maxsize=_KEPT_FUNCTIONS)
def _signature_behind_context(function: Callable[..., object]) -> inspect.Signature:
    signature = _signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


@functools.lru_cache(maxsize=_KEPT_FUNCTIONS)
def _hints_of(function: Callable[..., object]) -> dict[str, object]:
    """Return the declared types. Raises, and caches nothing, while a name in them is not defined yet."""
    return get_type_hints(function, include_extras=True)


def _hints(function: Callable[..., object]) -> dict[str, object]:
    function = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    try:
        return _hints_of(function)
    except (NameError, TypeError, AttributeError):
        found: dict[str, object] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found |= get_type_hints(holder, getattr(function, "__globals__", {}), include_extras=True)
        except (NameError, TypeError, AttributeError):
            # A name that only a type checker can see: treat this one annotation as undeclared.
            continue
    return found


def _encode_other(value: object) -> object:
    if isinstance(value, _PydanticModel):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    raise NotImplementedError(
        f"{type(value).__qualname__} is not plain JSON, a dataclass, a Struct or a pydantic model"
    )


def _decode_other(kind: type[Any], plain: object) -> object:
    if kind is object:
        return plain
    validate = getattr(kind, "model_validate_json", None)
    if validate is None:
        raise NotImplementedError(f"{kind.__qualname__} cannot be read from JSON")
    # As JSON, in which a strict model takes a text for a date.
    return validate(msgspec.json.encode(plain))


def _schema_of_other(kind: type[Any]) -> dict[str, Any]:
    if kind is object:
        return {"title": "anything"}
    schema = getattr(kind, "model_json_schema", None)
    if schema is None:
        raise NotImplementedError(f"{kind.__qualname__} is not plain JSON, a dataclass, a Struct or a pydantic model")
    found: dict[str, Any] = schema()
    return found


def _convert(plain: JSON, declared: object) -> object:
    if declared is Any:
        return plain
    adapter = _adapter_of(declared)
    if adapter is not None:
        return adapter.validate_json(msgspec.json.encode(plain))
    return convert_declared(plain, declared, _decode_other)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return type(value) in _PLAIN


def _why_not_plain(value: object, what: str) -> str:
    """Return the error text for a value without a declared type that is not plain JSON, with the part that is not."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return (
                    f"{what} has the key {key!r:.80} of type {type(key).__name__}, and the keys of JSON are text: use "
                    f"str(key), or declare the type where it is returned or taken: dict[{type(key).__name__}, ...]"
                )
            if not _is_plain(item):
                return _why_not_plain(item, f"{what}[{key!r:.80}]")
    if isinstance(value, list | tuple):
        index = next(index for index, item in enumerate(value) if not _is_plain(item))
        return _why_not_plain(value[index], f"{what}[{index}]")
    return (
        f"{what} is of type {type(value).__name__}; declare its type where it is returned or taken, with a name that "
        "can be found in its module, or use plain JSON"
    )


def _is_faithful(value: object, back: object) -> bool:
    """Return True if a decoded value equals the original, except for tuples that became lists."""
    if isinstance(value, list | tuple) and isinstance(back, list | tuple):
        return len(value) == len(back) and all(map(_is_faithful, value, back))
    if isinstance(value, dict) and isinstance(back, dict):
        return value.keys() == back.keys() and all(_is_faithful(item, back[key]) for key, item in value.items())
    if type(value) is type(back) and type(value).__eq__ is object.__eq__:
        return True
    return bool(value == back)
