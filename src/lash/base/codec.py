"""Encodes values as JSON, and decodes stored JSON with verification.

``decode`` returns every value that ``encode`` accepts unchanged, except that tuples inside plain JSON become lists. A
value that would not survive the round trip is refused when it is encoded.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import math
from typing import Final, TypeVar

import msgspec

from lash.base.limits import MAX_INTEGER, MAX_JSON_DEPTH, MIN_INTEGER
from lash.base.seal import refuse_sealed
from lash.base.shapes import decoder
from lash.errors import CorruptData, InvalidInput

T = TypeVar("T")

_encoder: Final = msgspec.json.Encoder()
_canonical_encoder: Final = msgspec.json.Encoder(order="deterministic")
_SAME_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_INTEGER: Final = b"0" * 19
"""Every integer that may exceed 64 bits contains this once all digits are 0; much cheaper than a regular expression."""

_LEAST_SUSPECT: Final = len(_LONG_INTEGER)
"""A shorter text contains neither such an integer nor deep nesting."""


def encode(value: object, shape: type[T], what: str) -> str:
    """Return the JSON text of a value of this shape; raise InvalidInput naming the part that cannot be stored."""
    return encode_to_bytes(value, shape, what).decode()


def to_text(value: object) -> str:
    """Return the JSON text of a value whose parts all come from `encode`, `decode` or a check; nothing is verified."""
    return _encoder.encode(value).decode()


def encode_to_bytes(value: object, shape: type[T], what: str) -> bytes:
    """Return the same text in UTF-8."""
    try:
        encoded = _encoder.encode(value)
        if len(encoded) >= _LEAST_SUSPECT and _is_suspect(encoded):
            _check_plain(value, what)
        back: object = decoder(shape).decode(encoded)
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
        return decoder(shape).decode(text)
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


def _is_suspect(encoded: bytes) -> bool:
    """Return whether a text may contain deep nesting or an integer beyond 64 bits, so that the value is walked."""
    is_deep = len(encoded) > MAX_JSON_DEPTH and encoded.count(b"{") + encoded.count(b"[") > MAX_JSON_DEPTH
    return is_deep or _LONG_INTEGER in encoded.translate(_SAME_DIGITS)


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
