"""Encodes values as JSON, and decodes stored JSON with verification.

``decode`` returns every value that ``encode`` accepts unchanged, except that tuples inside plain JSON become lists. A
value that would not survive the round trip is refused when it is encoded.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import hashlib
import math
import threading
from typing import Any, Final, TypeVar

import msgspec

from lash.base.limits import MAX_INTEGER, MAX_JSON_DEPTH, MIN_INTEGER
from lash.base.seal import refuse_sealed
from lash.errors import CorruptData, InvalidInput

T = TypeVar("T")

_encoder: Final = msgspec.json.Encoder()
_canonical_encoder: Final = msgspec.json.Encoder(order="deterministic")
_SAME_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER: Final = b"0" * 19
"""Every integer that may exceed 64 bits contains this once all digits are 0; much cheaper than a regular expression."""


def encode(value: object, shape: type[T], what: str) -> str:
    """Return the JSON text of a value of this shape; raise InvalidInput naming the part that cannot be stored."""
    return encode_to_bytes(value, shape, what).decode()


def encode_to_bytes(value: object, shape: type[T], what: str) -> bytes:
    """Return the same text in UTF-8."""
    try:
        encoded = _encoder.encode(value)
        _check_suspects(value, encoded, what)
        back: object = _decoder(shape).decode(encoded)
        if back != value:
            _check_plain(value, what)
            _check_returned(value, back, what)
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} contains a lone surrogate") from None
    except RecursionError:
        raise InvalidInput(f"{what} is nested more than {MAX_JSON_DEPTH} levels deep") from None
    except (TypeError, ValueError, OverflowError) as error:
        _check_plain(value, what)
        raise InvalidInput(f"{what}: {error}") from None
    return encoded


def decode(text: str | bytes, shape: type[T], what: str) -> T:
    """Read stored JSON text as a value of this shape, or raise CorruptData."""
    try:
        return _decoder(shape).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse_sealed(text)
        raise CorruptData(f"{what} cannot be read: {error}") from error


def canonical(value: object) -> bytes:
    """Return the canonical JSON text of a value: the same on every machine, without white space.

    Keys are sorted; fields of structs keep the order of their declaration, so moving a field changes hashes.
    """
    return _canonical_encoder.encode(value)


def content_hash(content: bytes) -> str:
    """Return the lowercase hex SHA-256 of the bytes."""
    return hashlib.sha256(content).hexdigest()


_decoders: Final[dict[object, msgspec.json.Decoder[Any]]] = {}
_described: Final[set[type[msgspec.Struct]]] = set()
_describing: Final = threading.Lock()


def describe_shapes() -> None:
    """Let msgspec prepare every struct type defined so far, before several threads decode.

    msgspec prepares a type at its first use, and other threads can see the half-prepared type meanwhile: two threads
    that use a new type at the same moment crash the interpreter.
    """
    with _describing:
        bases: list[type[msgspec.Struct]] = [msgspec.Struct]
        while bases:
            for shape in bases.pop().__subclasses__():
                bases.append(shape)
                if shape not in _described:
                    # A struct whose annotations only a type checker can resolve is never decoded.
                    with contextlib.suppress(NameError, TypeError):
                        msgspec.json.Decoder(shape)
                    _described.add(shape)


def _decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _decoders.get(shape)
    if decoder is None:
        with _describing:
            decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    return decoder


def _check_suspects(value: object, encoded: bytes, what: str) -> None:
    """Walk the value only if its text may contain deep nesting or an integer beyond 64 bits."""
    if encoded.count(b"{") + encoded.count(b"[") > MAX_JSON_DEPTH or _LONG_INTEGER in encoded.translate(_SAME_DIGITS):
        _check_plain(value, what)


def _check_plain(value: object, path: str, depth: int = 0) -> None:
    """Raise InvalidInput for the first part of the value that JSON cannot represent unchanged."""
    match value:
        case msgspec.Struct() | dict() | list() | tuple() | frozenset() if depth == MAX_JSON_DEPTH:
            raise InvalidInput(f"{path.split('.', 1)[0]} is nested more than {MAX_JSON_DEPTH} levels deep")
        case msgspec.Struct():
            for name in value.__struct_fields__:
                _check_plain(getattr(value, name), f"{path}.{name}", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidInput(f"{path} has a key that is not text: {key!r}")
                _check_plain(item, f"{path}.{key}", depth + 1)
        case list() | tuple() | frozenset():
            for index, item in enumerate(value):
                _check_plain(item, f"{path}[{index}]", depth + 1)
        case _:
            _check_scalar(value, path)


def _check_returned(value: object, back: object, path: str) -> None:
    """Raise InvalidInput for the first part that is decoded as another value."""
    match value, back:
        case msgspec.Struct(), _ if type(back) is type(value):
            for name in value.__struct_fields__:
                _check_returned(getattr(value, name), getattr(back, name), f"{path}.{name}")
        case dict(), dict():
            for key, item in value.items():
                _check_returned(item, back[key], f"{path}.{key}")
        case ((list() | tuple()), (list() | tuple())):
            for index, (item, item_back) in enumerate(zip(value, back, strict=True)):
                _check_returned(item, item_back, f"{path}[{index}]")
        case _ if value != back:
            raise InvalidInput(f"{path} is of type {type(value).__name__} and would be read back as {back!r:.80}")


def _check_scalar(value: object, path: str) -> None:
    match value:
        case None | bool() | str() | enum.Enum() | datetime.datetime() | msgspec.UnsetType():
            return
        case int() if MIN_INTEGER <= value <= MAX_INTEGER:
            return
        case int():
            raise InvalidInput(f"{path} is an integer beyond 64 bits; send it as text")
        case float() if math.isfinite(value):
            return
        case float():
            raise InvalidInput(f"{path} is {value}, which JSON cannot represent")
        case _:
            raise InvalidInput(f"{path} is of type {type(value).__name__}, which is not plain JSON")
