"""Reading nodes by id, parent and kind on SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import apsw

from lash.base.shapes import convert
from lash.plan.session.kind import NEWEST, OLDEST, NodePage, NodePlace
from lash.plan.session.node import PathRow, kind_of
from lash.sqlite.engine.database import Reader
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.lookup import find_session_key

_FILLED_AT_ONCE: Final = 1_000
"""How many nodes get their kind at a time, so that memory does not grow with the storage."""


def read_nodes(reader: Reader, session_id: str, node_ids: Sequence[str]) -> list[PathRow]:
    """Return the live nodes among the ids, own or inherited."""
    key = find_session_key(reader, session_id)
    return reader.all(PathRow, "node_many", session_key=key, node_ids=json_array(node_ids))


def read_children(reader: Reader, session_id: str, node_id: str, page: NodePage) -> list[PathRow] | None:
    """Return a page of the live children of a node; None if ``page.after`` is unknown."""
    key = find_session_key(reader, session_id)
    place = _place(reader, key, page)
    if place is None:
        return None
    return reader.all(
        PathRow,
        "node_children",
        session_key=key,
        node_id=node_id,
        own=int(place.own),
        place=place.place,
        limit=page.limit,
    )


def read_kind(reader: Reader, session_id: str, kind: str, page: NodePage) -> list[PathRow] | None:
    """Return a page of the live nodes of a kind; None if ``page.after`` is unknown."""
    key = find_session_key(reader, session_id)
    place = _place(reader, key, page)
    if place is None:
        return None
    name = "node_list_newest" if page.newest_first else "node_list"
    return reader.all(
        PathRow, name, session_key=key, kind=kind, own=int(place.own), place=place.place, limit=page.limit
    )


def _place(reader: Reader, session_key: int, page: NodePage) -> NodePlace | None:
    if page.after is None:
        return NEWEST if page.newest_first else OLDEST
    return reader.one(NodePlace, "node_place", session_key=session_key, node_id=page.after)


def fill_kinds(connection: apsw.Connection, queries: Mapping[str, str]) -> None:
    """Give nodes that were stored before nodes had a kind their kinds."""
    after = {"session_key": -1, "node_id": ""}
    while rows := connection.execute(queries["node_without_kind"], {**after, "limit": _FILLED_AT_ONCE}).fetchall():
        for session_key, node_id, body, packed in rows:
            row = convert((node_id, None, 0, False, body, packed), PathRow)
            after = {"session_key": session_key, "node_id": node_id}
            connection.execute(queries["node_set_kind"], {**after, "kind": kind_of(row)})
