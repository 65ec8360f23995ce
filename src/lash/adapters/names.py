"""Ids of frameworks as parts of ids and keys of lash, which have at most 255 characters."""

from __future__ import annotations

import hashlib


def short(text: str, limit: int) -> str:
    """Return the text, or its hash if it is empty, too long, or has a character that no id may have."""
    if 0 < len(text) <= limit and "\0" not in text:
        return text
    return "#" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
