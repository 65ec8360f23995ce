"""Values in the form of LangGraph's own savers, taken apart without decoding the objects in them.

A list is cut into the bytes of its items. So an object whose class cannot be imported here is kept as it is, and an
item is stored once however many checkpoints have it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import msgspec
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from lash.adapters.langgraph.codec import Typed

_KEY_VARIABLE: Final = "LANGGRAPH_AES_KEY"
"""The variable from which LangGraph reads its key."""
_FORMATS: Final = {"msgpack": msgspec.msgpack, "json": msgspec.json}


class Unreadable(Exception):
    """The value cannot be taken apart; the text is the reason."""


class Cipher:
    """Decrypts what LangGraph has encrypted, if the key is given, and encrypts its parts again."""

    def __init__(self) -> None:
        self._cipher: CipherProtocol | None = None
        if os.environ.get(_KEY_VARIABLE):
            self._cipher = EncryptedSerializer.from_pycryptodome_aes().cipher

    def opened(self, typed: Typed) -> Typed:
        """Return the value in clear; raise Unreadable if that is not possible."""
        name, cipher_name = _split(typed)
        if cipher_name is None:
            return typed
        if self._cipher is None:
            raise Unreadable(f"encrypted; set {_KEY_VARIABLE} to import it")
        try:
            return name, self._cipher.decrypt(cipher_name, typed[1])
        except (AssertionError, ValueError) as error:
            raise Unreadable(f"the key in {_KEY_VARIABLE} does not decrypt it") from error

    def sealed(self, clear: Typed, like: Typed) -> Typed:
        """Return a part of a value, encrypted if the value was."""
        if _split(like)[1] is None or self._cipher is None:
            return clear
        cipher_name, content = self._cipher.encrypt(clear[1])
        return f"{clear[0]}+{cipher_name}", content


def fields_of(typed: Typed) -> dict[str, Typed]:
    """Return the fields of a stored dict, each as a value of its own."""
    name, content = typed
    format_ = _FORMATS.get(name)
    if format_ is None:
        raise Unreadable(f"unknown format {name!r}")
    try:
        fields = format_.decode(content, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise Unreadable(f"damaged: {error}") from error
    return {key: (name, bytes(value)) for key, value in fields.items()}


def items_of(typed: Typed) -> list[Typed] | None:
    """Return the items of a stored list, each as a value of its own; None if it is not a list."""
    name, content = typed
    format_ = _FORMATS.get(name)
    if format_ is not None:
        with contextlib.suppress(msgspec.MsgspecError):
            return [(name, bytes(item)) for item in format_.decode(content, type=list[msgspec.Raw])]
    return None


def joined(fields: dict[str, Typed]) -> Typed:
    """Return fields of one format as a dict; the opposite of `fields_of`."""
    name = next((name for name, _ in fields.values()), "msgpack")
    return name, _FORMATS[name].encode({key: msgspec.Raw(content) for key, (_, content) in fields.items()})


def listed(values: list[Typed]) -> Typed:
    """Return values as one list; raise Unreadable if they have different formats."""
    names = {name for name, _ in values}
    if len(names) != 1 or not names <= _FORMATS.keys():
        raise Unreadable(f"a list of values in the formats {', '.join(sorted(names))}")
    (name,) = names
    return name, _FORMATS[name].encode([msgspec.Raw(content) for _, content in values])


def packed(value: object) -> Typed:
    """Return plain JSON as LangGraph's serializer encodes it."""
    return ("null", b"") if value is None else ("msgpack", msgspec.msgpack.encode(value))


def _split(typed: Typed) -> tuple[str, str | None]:
    name, plus, cipher_name = typed[0].partition("+")
    return name, cipher_name if plus else None
