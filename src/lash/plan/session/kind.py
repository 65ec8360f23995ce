"""Kinds of nodes, by which nodes are listed, and pages of such lists."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from lash.base.codec import content_hash
from lash.base.limits import MAX_IDENTIFIER_LENGTH, MAX_INTEGER, check_identifier, check_limit, check_text
from lash.errors import InvalidInput

MESSAGE: Final = "message"
"""The kind of most nodes."""
ERASED: Final = "erased"
"""The kind of nodes whose content is gone."""
_PREFIXES: Final = ("protocol:", "plugin:", "bytes:")


class NodePage(NamedTuple):
    """The page of a list of nodes that follows a node, or the first page."""

    after: str | None
    limit: int
    newest_first: bool = False


class NodePlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a node stands in the order of the whole graph: inherited nodes by their depth, then own ones by number."""

    own: bool
    place: int


OLDEST: Final = NodePlace(own=False, place=-1)
"""The place before all nodes."""
NEWEST: Final = NodePlace(own=True, place=MAX_INTEGER)
"""The place after all nodes."""


def stored_kind(kind: str) -> str:
    """Return the kind as its column holds it: a hash stands for a name that the column or its index cannot hold."""
    if len(kind) <= MAX_IDENTIFIER_LENGTH and "\0" not in kind:
        return kind
    prefix, _, name = kind.partition(":")
    return f"{prefix}:{content_hash(name.encode())}"


def check_kind(kind: object) -> str:
    """Return the stored form of a kind to list, or raise InvalidInput."""
    if isinstance(kind, str) and (kind in (MESSAGE, ERASED) or kind.startswith(_PREFIXES)):
        check_text("kind", kind.replace("\0", ""), limit=len(kind))
        return stored_kind(kind)
    known = "message, protocol:<plugin_id>, plugin:<plugin_type>, bytes:<plugin_type> or erased"
    raise InvalidInput(f"unknown kind of node {kind!r:.80}; use {known}")


def check_page(after: object, limit: object, *, newest_first: bool = False) -> NodePage:
    """Return the page, or raise InvalidInput."""
    return NodePage(None if after is None else check_identifier("after", after), check_limit(limit), newest_first)
