"""Keys made of several parts, under which steps are recorded."""

from __future__ import annotations

from typing import Final

from lash.base.codec import content_hash
from lash.base.limits import MAX_IDENTIFIER_LENGTH, check_identifier, check_integer, check_text
from lash.errors import InvalidInput

_READABLE: Final = MAX_IDENTIFIER_LENGTH - 65
"""What is left of a long key beside a tilde and a hash."""


def replay_key(*parts: str | int) -> str:
    """Return a key that is unique to these parts, and readable as far as it fits.

    A number counts as its text. Colons, tildes and per cent signs inside a part are escaped. A key longer than an
    identifier may be is cut, and ends with a tilde and a hash of the whole.
    """
    if not parts:
        raise InvalidInput("a replay key needs at least one part")
    whole = ":".join(_escaped(part) for part in parts)
    if len(whole) > MAX_IDENTIFIER_LENGTH:
        whole = f"{whole[:_READABLE]}~{content_hash(whole.encode())}"
    return check_identifier("replay_key", whole)


def derived_id(owner: str, *parts: str) -> str:
    """Return an id below the owner's id, which it begins with; unique if no part has a colon."""
    whole = ":".join((owner, *parts))
    if len(whole) > MAX_IDENTIFIER_LENGTH:
        whole = f"{whole[:_READABLE]}~{content_hash(whole.encode())}"
    return check_identifier("id", whole)


def _escaped(part: str | int) -> str:
    text = str(check_integer("part", part)) if not isinstance(part, str) else check_text("part", part)
    return text.replace("%", "%25").replace(":", "%3A").replace("~", "%7E")
