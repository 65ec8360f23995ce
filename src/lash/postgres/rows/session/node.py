"""Reading nodes by id, parent and kind on PostgreSQL."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.plan.session.node import PathRow, kind_of
from lash.postgres.engine.database import Transaction

_FILLED_AT_ONCE: Final = 1_000
"""How many nodes get their kind at a time, so that memory does not grow with the storage."""


class NodeAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Nodes of a session that exists."""

    session_key: int
    nodes: list[PathRow]


class NodePageAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A page of nodes, and whether the session has the node that the page comes after."""

    session_key: int
    begins: bool
    nodes: list[PathRow]


class UnnamedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node that was stored before nodes had a kind."""

    session_key: int
    node_id: str
    body: str
    packed: bytes | None


async def fill_kinds(transaction: Transaction) -> None:
    """Give nodes that were stored before nodes had a kind their kinds."""
    session_key, node_id = -1, ""
    while rows := await transaction.all(UnnamedNode, "node_without_kind", session_key, node_id, _FILLED_AT_ONCE):
        kinds = [kind_of(PathRow(row.node_id, None, 0, False, row.body, row.packed)) for row in rows]
        await transaction.run("node_set_kind", [row.session_key for row in rows], [row.node_id for row in rows], kinds)
        session_key, node_id = rows[-1].session_key, rows[-1].node_id
