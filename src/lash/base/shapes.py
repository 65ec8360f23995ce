"""Reads values of declared types with msgspec, from any thread.

msgspec prepares a type at its first use: it resolves the annotations, of all types that they name too. Other threads
can see the half-prepared type meanwhile, and two threads that use a new type at the same moment crash the interpreter.
So every read here prepares its type first, under one lock. A type that is never read is never prepared.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any, Final, TypeVar, cast, overload

import msgspec

R = TypeVar("R")
T = TypeVar("T")

_KEPT: Final = 4_096
"""How many types are known to be prepared; types that applications make at run time must not pile up."""
_KNOWN: Final = ("lash.", "msgspec.")
"""Packages whose types are read by this module, or not at all."""
_preparing: Final = threading.RLock()
_decoders: Final[dict[object, msgspec.json.Decoder[Any]]] = {}


def prepare_foreign() -> None:
    """Prepare the struct types of other packages, which their threads read without this module."""
    for shape in _foreign():
        # A struct whose annotations cannot be evaluated is never read; they are expressions of any kind.
        with contextlib.suppress(Exception):
            _prepare_hashable(shape)


@overload
def convert(value: object, shape: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: object, shape: object, *, strict: bool = True) -> Any: ...  # noqa: ANN401 (a union has no type)
def convert(value: object, shape: object, *, strict: bool = True) -> object:
    """Return a value in the given shape; raise `msgspec.ValidationError` if it does not fit."""
    _prepare_hashable(shape)
    return msgspec.convert(value, shape, strict=strict)


def convert_all(rows: list[R], shape: type[T]) -> list[T]:
    """Return rows of a database in the given shape; raise `msgspec.ValidationError` if one does not fit."""
    _prepare_hashable(shape)
    return cast("list[T]", msgspec.convert(rows, GenericAlias(list, (shape,)), strict=False))


def convert_declared(value: object, declared: object, read_other: Callable[[type[Any], object], object]) -> object:
    """Return a value as a type that an application declares; ``read_other`` reads types that msgspec does not know.

    Raises `msgspec.ValidationError` if it does not fit, and TypeError if the type cannot be read.
    """
    try:
        _prepare_hashable(declared)
    except TypeError:
        # Some annotations cannot be the key of a cache.
        _prepare(declared)
    return msgspec.convert(value, cast("Any", declared), str_keys=True, dec_hook=read_other)


@overload
def decoder(shape: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(shape: object) -> msgspec.json.Decoder[Any]: ...
def decoder(shape: object) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type. Types are those of lash's own code: a decoder is kept for each.

    Not for the top level of a module: what waits for the lock of an import must not hold that of the preparation.
    """
    found = _decoders.get(shape)
    if found is None:
        with _preparing:
            found = _decoders[shape] = msgspec.json.Decoder(shape)
    return found


@overload
def read_json(text: str | bytes, shape: type[T]) -> T: ...
@overload
def read_json(text: str | bytes, shape: object) -> Any: ...  # noqa: ANN401 (a union has no type)
def read_json(text: str | bytes, shape: object) -> object:
    """Return a JSON text in the given shape; raise `msgspec.DecodeError` if it is malformed or does not fit."""
    return decoder(shape).decode(text)


def read_msgpack(content: bytes, shape: type[T]) -> T:
    """Return a MessagePack value in the given shape; raise `msgspec.DecodeError` if it is malformed or does not fit."""
    _prepare_hashable(shape)
    return msgspec.msgpack.decode(content, type=shape)


def _prepare(shape: object) -> None:
    with _preparing, contextlib.suppress(msgspec.ValidationError):
        # None fits few types, and nothing is called that belongs to one.
        msgspec.convert(None, cast("Any", shape))


_prepare_hashable: Final[Callable[[object], None]] = functools.lru_cache(maxsize=_KEPT)(_prepare)


def _foreign() -> Iterator[type[msgspec.Struct]]:
    bases: list[type[msgspec.Struct]] = [msgspec.Struct]
    while bases:
        for shape in bases.pop().__subclasses__():
            bases.append(shape)
            if not shape.__module__.startswith(_KNOWN):
                yield shape
