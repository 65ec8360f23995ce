"""Keys of the items of a store: the labels of a namespace, then the item, so that a namespace is a range of keys."""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

from lash.errors import InvalidInput

Namespace: TypeAlias = tuple[str, ...]

_ITEM: Final = "\x01"
"""Stands before the key of an item; it sorts before every label, so items come before nested namespaces."""
_MAX_NAMESPACE: Final = 180
_MAX_KEY: Final = 64
"""Longer keys are hashed: the key of a record has at most 255 characters."""


def key_prefix(namespace: Namespace) -> str:
    """Return the start of the keys of everything in a namespace and below it."""
    prefix = "".join(f"{_quoted(label)}/" for label in namespace)
    if len(prefix) > _MAX_NAMESPACE:
        raise InvalidInput(f"namespace has {len(prefix)} characters; at most {_MAX_NAMESPACE} are allowed")
    return prefix


def item_key(namespace: Namespace, key: str) -> str:
    """Return the key of an item."""
    quoted = _quoted(key)
    if len(quoted) > _MAX_KEY:
        quoted = "\x02" + hashlib.blake2b(key.encode(), digest_size=20).hexdigest()
    return f"{key_prefix(namespace)}{_ITEM}{quoted}"


def after_namespace(namespace: Namespace) -> str:
    """Return a text behind the keys of all items of a namespace, and before those of nested namespaces."""
    return f"{key_prefix(namespace)}{_ITEM}\U0010ffff"


def _quoted(text: str) -> str:
    for character in "%/\x00\x01\x02":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
