"""Encrypts values with AES-GCM, under keys that have ids."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Final, Self

from lash.errors import CannotUnseal, ConfigError

KEYS_VARIABLE: Final = "LASH_KEYS"
"""The environment variable that the ``lash`` command reads keys from."""
_KEY_BYTES: Final = (16, 24, 32)
_NEW_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
"""What AES-GCM is defined for; a longer nonce would be hashed to this length."""
_MAX_ID_BYTES: Final = 255
"""The length of an id is stored in one byte."""


class AesGcm:
    """Seals values with AES-GCM; the contract is `lash.Sealer`.

    ``keys`` are 16, 24 or 32 bytes each, by id. Values are sealed with the ``current`` key, and unsealed with the key
    whose id they carry. To rotate, add a key, make it the current one, seal the old values again (``lash db rewrap``),
    and remove the old key.

    Every value gets a random nonce: rotate before a key has sealed 2³² values.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str | None = None) -> None:
        """Check the keys; with one key, it is the current one."""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError:
            raise ConfigError(
                "AES-GCM needs the package cryptography: pip install 'lash-runtime[encryption]'"
            ) from None
        chosen = next(iter(keys)) if current is None and len(keys) == 1 else current
        if chosen is None or chosen not in keys:
            raise ConfigError(f"expected current to be one of the {len(keys)} keys, got {current!r}")
        self._ciphers = {_checked_id(key_id): AESGCM(_checked_key(key_id, key)) for key_id, key in keys.items()}
        self._current = self._ciphers[chosen]
        self._header = _header(chosen)
        self._invalid: Final = InvalidTag

    @classmethod
    def from_environment(cls, variable: str = KEYS_VARIABLE) -> Self:
        """Return the sealer whose keys a variable lists, as ``id:base64,id:base64``; the first is the current one."""
        listed = os.environ.get(variable, "")
        keys: dict[str, bytes] = {}
        for each in filter(None, (part.strip() for part in listed.split(","))):
            key_id, _, text = each.partition(":")
            try:
                keys[key_id] = base64.b64decode(text, validate=True)
            except binascii.Error:
                raise ConfigError(f"{variable}: the key {key_id!r:.80} is not base64") from None
        if not keys:
            raise ConfigError(f"{variable}: expected keys as id:base64,id:base64, got none")
        return cls(keys, current=next(iter(keys)))

    @staticmethod
    def new_key() -> bytes:
        """Return a new random key of 256 bits."""
        return os.urandom(_NEW_KEY_BYTES)

    def seal(self, value: bytes, place: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self._header + nonce + self._current.encrypt(nonce, value, self._header + place)

    def unseal(self, sealed: bytes, place: bytes) -> bytes:
        length = 1 + sealed[0] if sealed else 0
        header, nonce, encrypted = sealed[:length], sealed[length:][:_NONCE_BYTES], sealed[length + _NONCE_BYTES :]
        key_id = header[1:].decode("utf-8", "replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            known = ", ".join(map(repr, self._ciphers))
            raise CannotUnseal(
                f"unknown key {key_id!r:.80}, expected one of {known}; add the key that sealed the value"
            )
        try:
            return cipher.decrypt(nonce, encrypted, header + place)
        except (self._invalid, ValueError):
            raise CannotUnseal(
                f"key {key_id!r} does not open the value: the storage was sealed with another key of this id, or the "
                "value was altered or moved; give the right key, or restore a backup"
            ) from None

    def is_current(self, sealed: bytes) -> bool:
        return sealed.startswith(self._header)


def _header(key_id: str) -> bytes:
    encoded = key_id.encode()
    return bytes([len(encoded)]) + encoded


def _checked_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not 0 < len(key_id.encode()) <= _MAX_ID_BYTES:
        raise ConfigError(f"expected the id of a key as text of 1 to {_MAX_ID_BYTES} bytes, got {key_id!r:.80}")
    return key_id


def _checked_key(key_id: str, key: object) -> bytes:
    # The message must not show the key.
    if not isinstance(key, bytes) or len(key) not in _KEY_BYTES:
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ConfigError(f"key {key_id!r}: expected 16, 24 or 32 bytes, got {got}; make one with AesGcm.new_key()")
    return key
