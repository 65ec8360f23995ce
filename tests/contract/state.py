"""The visible state of a session, to compare before and after."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lash.errors import LashError
from lash.model.lease import Lease
from lash.model.session.commit import Commit
from lash.model.session.session import FullGraph, SessionMeta, SessionPage, SessionRead
from lash.stores.storage import Storage


class Observed(NamedTuple):
    """Everything that the public API shows of one session, and of the list of sessions."""

    read: SessionRead | None
    meta: SessionMeta
    holder: Lease | None
    page: SessionPage


async def observe(storage: Storage, session_id: str = "s") -> Observed:
    """Read a session through the public API."""
    session = storage.session(session_id)
    return Observed(
        read=await session.load(FullGraph()),
        meta=await session.meta(),
        holder=await storage.leases.holder(session_id),
        page=await storage.sessions.list(),
    )


async def loaded(storage: Storage, session_id: str = "s") -> SessionRead:
    """Return the whole session, which must have a commit."""
    read = await storage.session(session_id).load(FullGraph())
    assert read is not None
    return read


def ids(read: SessionRead | None) -> list[str]:
    """Return the ids of the nodes that were read."""
    assert read is not None
    return [node.node_id for node in read.graph.nodes]


async def refuse(storage: Storage, commit: Commit, error: type[LashError]) -> None:
    """Assert that the commit raises exactly this error and changes nothing visible."""
    before = await observe(storage, commit.session_id)
    with pytest.raises(error) as raised:
        await storage.session(commit.session_id).commit(commit)
    assert type(raised.value) is error
    assert await observe(storage, commit.session_id) == before
