"""Limits of stored values, checked before any transaction begins."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from lash.errors import InvalidInput

MAX_IDENTIFIER_LENGTH: Final = 255
"""Ids and keys are indexed, several in one index entry."""
MAX_TEXT_LENGTH: Final = 4_096
"""Names and labels are shown in lists; longer text belongs in content."""
MAX_INTEGER: Final = 2**63 - 1
"""The largest integer of a column in both databases."""
MIN_INTEGER: Final = -(2**63)
"""The smallest integer of a column in both databases."""
MAX_JSON_DEPTH: Final = 100
"""The deepest nesting of stored JSON, far below the depth at which encoders and decoders fail."""
MAX_CONTENT_BYTES: Final = 512 * 1024 * 1024
"""The most bytes in one row: about half of what either database can store in one value."""
MAX_PAGE: Final = 1_000
"""The largest page of any list: it is decoded on the event loop."""
_LAST_CHARACTER: Final = "\U0010ffff"
_SURROGATES: Final = range(0xD800, 0xE000)
"""Code points that no stored text contains."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")


def check_identifier(what: str, value: object) -> str:
    """Return the value if it is a valid id or key: text, not blank, not too long, storable in both databases."""
    # Nearly all ids are plain, and many are checked in each turn.
    if (
        type(value) is str
        and 0 < len(value) <= MAX_IDENTIFIER_LENGTH
        and value.isascii()
        and "\0" not in value
        and not value.isspace()
    ):
        return value
    text = check_text(what, value, limit=MAX_IDENTIFIER_LENGTH)
    if not text.strip():
        raise InvalidInput(f"{what} is blank")
    return text


def are_plain_identifiers(*values: object) -> bool:
    """Return whether all are valid ids in ASCII. If not, `check_identifier` decides about each, and names it."""
    for value in values:
        if (
            type(value) is not str
            or not 0 < len(value) <= MAX_IDENTIFIER_LENGTH
            or not value.isascii()
            or "\0" in value
            or value.isspace()
        ):
            return False
    return True


def check_identifiers(what: str, values: object) -> tuple[str, ...]:
    """Return the ids in their order, each one once; raise InvalidInput unless they are a collection of ids."""
    if values == ():
        return ()
    if isinstance(values, str | bytes) or not isinstance(values, Collection):
        raise InvalidInput(f"{what} must be a collection of ids, not {type(values).__name__}")
    return tuple(dict.fromkeys(check_identifier(f"{what} item", each) for each in values))


def check_text(what: str, value: object, *, limit: int = MAX_TEXT_LENGTH) -> str:
    """Return the value if it is text that both databases can store in a column."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {type(value).__name__}")
    if len(value) > limit:
        raise InvalidInput(f"{what} has {len(value):,} characters; at most {limit:,} are allowed")
    if "\0" in value:
        raise InvalidInput(f"{what} contains a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} contains a lone surrogate at position {error.start}") from None
    return value


def check_integer(what: str, value: object, *, at_least: int = MIN_INTEGER) -> int:
    """Return the value if it is an integer that fits a signed 64-bit column."""
    if type(value) is int and at_least <= value <= MAX_INTEGER:
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{what} must be an integer, not {type(value).__name__}")
    if not at_least <= value <= MAX_INTEGER:
        raise InvalidInput(f"{what} must lie between {at_least} and {MAX_INTEGER}")
    return value


def check_limit(limit: object) -> int:
    """Return the page size, or raise InvalidInput if a page cannot have it."""
    size = check_integer("limit", limit, at_least=1)
    if size > MAX_PAGE:
        raise InvalidInput(f"limit must be at most {MAX_PAGE:,}")
    return size


def saturating_add(left: int, right: int) -> int:
    """Add without leaving the range of a signed 64-bit column."""
    return min(left + right, MAX_INTEGER)


def prefix_end(prefix: str) -> str:
    """Return the least text above all ids that start with the prefix, in the order of code points.

    This is also the order of UTF-8 bytes. The result is above every id if no other text is.
    """
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return _LAST_CHARACTER * (MAX_IDENTIFIER_LENGTH + 1)
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def check_content(what: str, value: object, *, limit: int = MAX_CONTENT_BYTES) -> bytes:
    """Return the value if it is bytes that both databases can store in one row."""
    if not isinstance(value, bytes):
        raise InvalidInput(f"{what} must be bytes, not {type(value).__name__}")
    if len(value) > limit:
        raise InvalidInput(f"{what} has {len(value):,} bytes; at most {limit:,} are allowed")
    return value


def check_digest(what: str, value: object) -> str:
    """Return the value if it is a SHA-256 in 64 lowercase hex digits; such a text is never a path or a pattern."""
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise InvalidInput(f"{what} must be 64 lowercase hex digits, not {value!r:.80}")
    return value
