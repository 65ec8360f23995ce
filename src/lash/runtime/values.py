"""How arguments and results become JSON and come back as what they were, by their declared types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar, get_type_hints, runtime_checkable

import msgspec

from lash.codec import canonical, content_hash, decode, encode
from lash.errors import InvalidInput
from lash.model.value import JSON, Value

T = TypeVar("T")

UNTYPED: Final = object()
"""Stands for a type that was not declared."""
_PLAIN: Final = (type(None), bool, int, float, str, list, dict)


class _Box(Value, frozen=True, kw_only=True):
    value: JSON = None


@runtime_checkable
class _PydanticModel(Protocol):
    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


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
        raise InvalidInput(
            f"{what} is a {type(value).__name__}; declare its type where it is returned or taken, or use plain JSON"
        )
    # What is read back after a crash must be what the code sees without one.
    if declared is not UNTYPED and type(back) is not type(value) and back != value:
        raise InvalidInput(f"{what}, a {type(value).__name__}, would be read back as a {type(back).__name__}")
    return plain


def from_json(plain: JSON, declared: object, what: str) -> Any:  # noqa: ANN401 (the declared type is known at run time)
    """Return the value of the declared type, or raise InvalidInput saying where it does not fit."""
    if declared is UNTYPED:
        return plain
    try:
        return _convert(plain, declared)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidInput(f"{what} does not fit its declared type: {error}") from None


def result_type(function: Callable[..., object]) -> object:
    """Return the declared type of what a function returns, or UNTYPED."""
    return _hints(function).get("return", UNTYPED)


def parameter_types(function: Callable[..., object], *, skip: int) -> dict[str, object]:
    """Return the parameters behind the first ``skip`` ones by name, each with its declared type or UNTYPED."""
    hints = _hints(function)
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    return {each.name: hints.get(each.name, UNTYPED) for each in parameters}


def bind_arguments(
    function: Callable[..., object], what: str, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, JSON]:
    """Return the arguments behind the context, by name and as JSON, or raise InvalidInput if they do not fit."""
    signature = inspect.signature(function)
    shortened = signature.replace(parameters=list(signature.parameters.values())[1:])
    try:
        bound = shortened.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidInput(f"{what}: {error}") from None
    types = parameter_types(function, skip=1)
    return {name: to_json(value, types[name], f"{what}: argument {name!r}") for name, value in bound.arguments.items()}


def read_arguments(function: Callable[..., object], what: str, stored: Mapping[str, JSON]) -> dict[str, object]:
    """Return stored arguments as what the function takes."""
    types = parameter_types(function, skip=1)
    unknown = sorted(set(stored) - set(types))
    if unknown:
        raise InvalidInput(f"{what} takes no argument {unknown[0]!r}")
    return {name: from_json(value, types[name], f"{what}: argument {name!r}") for name, value in stored.items()}


def describe(args: tuple[object, ...], kwargs: Mapping[str, object], *, limit: int) -> JSON:
    """Return the arguments of a step as they take part in its identity.

    Small ones are kept as they are, so that a mismatch can show them; large ones as a hash. What JSON cannot carry,
    such as a client object, counts by the name of its type alone.
    """

    def described(value: object) -> JSON:
        try:
            plain = _plain(value, "argument")
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


def _plain(value: object, what: str) -> JSON:
    """Return the value as JSON reads it back, which has lists where there were tuples."""
    box = _Box(value=msgspec.to_builtins(value, enc_hook=_encode_other))
    return decode(encode(box, _Box, what), _Box, what).value


def _hints(function: Callable[..., object]) -> dict[str, object]:
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True)
    except (NameError, TypeError):
        # A name that only a type checker can see: as good as undeclared.
        return {}


def _encode_other(value: object) -> object:
    if isinstance(value, _PydanticModel):
        return value.model_dump(mode="json")
    raise NotImplementedError(
        f"{type(value).__qualname__} is not plain JSON, a dataclass, a Struct or a pydantic model"
    )


def _decode_other(kind: type[Any], plain: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{kind.__qualname__} cannot be read from JSON")
    return validate(plain)


def _convert(plain: JSON, declared: object) -> object:
    if declared is Any or declared is object:
        return plain
    return msgspec.convert(plain, declared, dec_hook=_decode_other)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return type(value) in _PLAIN
