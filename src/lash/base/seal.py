"""Sealing: values are wrapped before they are stored, and unwrapped when they are read.

A sealed value starts with a mark. A value without the mark was stored before the storage had a sealer, and is read as
it is. Structs of rows name their sealed fields in their annotations, so every row that an engine returns is unsealed in
one place; whatever compares values compares the plain ones.
"""

from __future__ import annotations

import binascii
import typing
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol, TypeVar, overload

import msgspec

from lash.base.shapes import read_json
from lash.errors import CannotUnseal

T = TypeVar("T")

TEXT_MARK: Final = "~lash1~"
"""Starts a sealed text. JSON never starts with it."""
BYTES_MARK: Final = b"\xfelash\x01"
"""Starts sealed bytes. Its first byte starts neither a UTF-8 text, nor a zstd frame, nor a valid deflate stream."""
_OBJECT_MARK: Final = '{"sealed":"' + TEXT_MARK
"""Starts a sealed JSON object that keeps some of its fields readable."""
_NO_SEALER: Final = (
    "the storage is sealed; open it with its sealer, lash.open(url, sealer=...); the lash command reads its keys from "
    "LASH_KEYS"
)

_encoder: Final = msgspec.json.Encoder()


class Sealer(Protocol):
    """Wraps values before they are stored, and unwraps them when they are read; `lash.AesGcm` is one.

    All methods are called on the event loop and in threads, several at a time, and must not block.
    """

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Return the sealed form of a value. ``place`` is where it is stored, which is not secret."""
        ...

    def unseal(self, sealed: bytes, place: bytes) -> bytes:
        """Return the value, or raise `CannotUnseal`: another key, another place, or altered bytes."""
        ...

    def is_current(self, sealed: bytes) -> bool:
        """Return whether sealing the value again would use the same key; rewrapping skips it then."""
        ...


class SealedField(NamedTuple):
    """A column whose values are sealed: its name, and the columns that identify the value.

    The value is bound to both. ``readable`` are fields of a JSON object that queries read.
    """

    name: str
    identity: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


class Seals:
    """Seals and unseals the values of one storage; without a sealer it returns them unchanged."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        self._sealer = sealer
        self.is_active: Final = sealer is not None

    @overload
    def text(self, field: SealedField, text: str, *identity: object) -> str: ...

    @overload
    def text(self, field: SealedField, text: str | None, *identity: object) -> str | None: ...

    def text(self, field: SealedField, text: str | None, *identity: object) -> str | None:
        """Return the text as it is stored in a text column; None and the empty text stay as they are."""
        if self._sealer is None or not text:
            return text
        sealed = self._sealer.seal(text.encode(), _place(field, identity))
        token = TEXT_MARK + binascii.b2a_base64(sealed, newline=False).decode()
        return _with_readable(field, text, token) if field.readable else token

    @overload
    def content(self, field: SealedField, content: bytes, *identity: object) -> bytes: ...

    @overload
    def content(self, field: SealedField, content: bytes | None, *identity: object) -> bytes | None: ...

    def content(self, field: SealedField, content: bytes | None, *identity: object) -> bytes | None:
        """Return the bytes as they are stored in a column of bytes."""
        if self._sealer is None or content is None:
            return content
        return BYTES_MARK + self._sealer.seal(content, _place(field, identity))

    def open_text(self, field: SealedField, text: str, *identity: object) -> str:
        """Return the text of a stored text, or raise CannotUnseal."""
        sealed = _sealed_in_text(text)
        return text if sealed is None else self._unseal(field, sealed, identity).decode()

    def open_content(self, field: SealedField, content: bytes, *identity: object) -> bytes:
        """Return the bytes of stored bytes, or raise CannotUnseal."""
        if not content.startswith(BYTES_MARK):
            return content
        return self._unseal(field, content[len(BYTES_MARK) :], identity)

    def is_current(self, stored: str | bytes) -> bool:
        """Return whether the stored value is sealed with the current key, or empty."""
        if self._sealer is None or not stored:
            return True
        if isinstance(stored, str):
            sealed = _sealed_in_text(stored)
        else:
            sealed = stored[len(BYTES_MARK) :] if stored.startswith(BYTES_MARK) else None
        return sealed is not None and self._sealer.is_current(sealed)

    def open_row(self, row: T) -> T:
        """Unseal the fields of a row that was just read, and of the rows inside it; return the same row."""
        if self._sealer is not None:
            self._open(row)
        return row

    def open_rows(self, rows: Iterable[T]) -> Iterable[T]:
        """Return the rows unsealed, one by one."""
        return map(self.open_row, rows) if self._sealer is not None else rows

    def _open(self, row: object) -> None:
        values, nested = _fields_of(type(row))
        for name, field in values:
            stored = getattr(row, name)
            if isinstance(stored, str | bytes):
                identity = [getattr(row, column) for column in field.identity]
                # The row was made by this read and nothing else has seen it.
                msgspec.structs.force_setattr(
                    typing.cast("msgspec.Struct", row), name, self._opened(field, stored, identity)
                )
        for name in nested:
            inside = getattr(row, name)
            for each in inside if isinstance(inside, list) else () if inside is None else (inside,):
                self._open(each)

    def _opened(self, field: SealedField, stored: str | bytes, identity: Iterable[object]) -> str | bytes:
        if isinstance(stored, str):
            return self.open_text(field, stored, *identity)
        return self.open_content(field, stored, *identity)

    def _unseal(self, field: SealedField, sealed: bytes, identity: Iterable[object]) -> bytes:
        if self._sealer is None:
            raise CannotUnseal(_NO_SEALER)
        place = _place(field, identity)
        try:
            return self._sealer.unseal(sealed, place)
        except CannotUnseal as error:
            raise CannotUnseal(f"{field.name} at {place.decode()}: {error}") from error


PLAIN: Final = Seals()
"""Stores values as they are."""


def is_sealed(stored: str | bytes) -> bool:
    """Return whether a stored value starts like a sealed one."""
    if isinstance(stored, str):
        return stored.startswith((TEXT_MARK, _OBJECT_MARK))
    return stored.startswith((BYTES_MARK, TEXT_MARK.encode(), _OBJECT_MARK.encode()))


def refuse_sealed(stored: str | bytes) -> None:
    """Raise CannotUnseal if a value that cannot be read is a sealed one; call it where reading has failed."""
    if is_sealed(stored):
        raise CannotUnseal(_NO_SEALER)


def _place(field: SealedField, identity: Iterable[object]) -> bytes:
    return _encoder.encode([field.name, *identity])


def _with_readable(field: SealedField, text: str, token: str) -> str:
    whole = read_json(text, dict[str, msgspec.Raw])
    kept = {name: whole[name] for name in field.readable if name in whole}
    return _encoder.encode({"sealed": token, **kept}).decode()


def _sealed_in_text(stored: str) -> bytes | None:
    """Return the sealed bytes of a stored text; None if it is a plain one."""
    token = stored
    if stored.startswith(_OBJECT_MARK):
        token, quote, _ = stored[len(_OBJECT_MARK) - len(TEXT_MARK) :].partition('"')
        if not quote:
            return None
    if not token.startswith(TEXT_MARK):
        return None
    try:
        return binascii.a2b_base64(token[len(TEXT_MARK) :], strict_mode=True)
    except ValueError:
        # A text that a person wrote; sealed ones are whole.
        return None


class _Fields(NamedTuple):
    """The sealed fields of a shape, and the fields that hold rows with sealed fields."""

    values: tuple[tuple[str, SealedField], ...]
    nested: tuple[str, ...]


_NO_FIELDS: Final = _Fields((), ())
_fields: Final[dict[type, _Fields]] = {}


def _fields_of(shape: type) -> _Fields:
    known = _fields.get(shape)
    if known is None:
        known = _fields[shape] = _find_fields(shape) if issubclass(shape, msgspec.Struct) else _NO_FIELDS
    return known


def _find_fields(shape: type) -> _Fields:
    values: list[tuple[str, SealedField]] = []
    nested: list[str] = []
    for name, hint in typing.get_type_hints(shape, include_extras=True).items():
        values += [(name, mark) for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, SealedField)]
        if any(_fields_of(each) != _NO_FIELDS for each in _structs_in(hint)):
            nested.append(name)
    return _Fields(tuple(values), tuple(nested))


def _structs_in(hint: object) -> Iterable[type]:
    """Yield the struct types of which a field, or the list in it, is made."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for part in typing.get_args(hint):
        yield from _structs_in(part)
