"""Ids of frameworks as parts of ids and keys of lash, which have at most 255 characters."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_FORBIDDEN: Final = re.compile("[\0\ud800-\udfff]")
"""NUL, and surrogates without their pair: no id has them."""


def short(text: str, limit: int) -> str:
    """Return the text, or its hash if it is blank, too long, or has a character that no id may have."""
    if text.strip() and len(text) <= limit and not _FORBIDDEN.search(text):
        return text
    return "#" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
