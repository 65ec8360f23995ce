"""Finds sessions whose stored relation is not JSON; an index reads it, so such a row stops a migration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lash.errors import CorruptData

INDEXED_BY: Final = "relatives"
"""The name of the migration that indexes relations."""
PAGE: Final = 1_000


class RelationRow(msgspec.Struct, frozen=True, array_like=True):
    """The relation of a session to others, as it is stored."""

    session_key: int
    session_id: str
    relation: str


def relation_damage(number: int, rows: Iterable[RelationRow]) -> CorruptData | None:
    """Return the error for the first row whose relation is not JSON; None if all are."""
    for row in rows:
        try:
            msgspec.json.decode(row.relation)
        except (msgspec.DecodeError, UnicodeError):
            return CorruptData(
                f"migration {number:04}_{INDEXED_BY}: the relation of session {row.session_id!r} is not JSON; "
                "repair or delete its row in lash_sessions, or restore a backup, and migrate again"
            )
    return None
