"""What an operator's model can read: lists in pages, and one item at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from lash.cli.text import plain
from lash.errors import InvalidInput, ProcessNotFound
from lash.model.process.process import ProcessFilter, ProcessStatus
from lash.model.queue import QueuedState
from lash.model.session.node import MessageEntry
from lash.model.session.session import ActivePath, SessionFilter, SessionState
from lash.model.wait import SignalIdentity
from lash.protocols.mcp.items import Answer, Items, whole_text
from lash.protocols.mcp.untrusted import MOST_AT_ONCE, Marker, moment
from lash.stores.storage import Storage

T = TypeVar("T")
Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=50, description="How many items to return.")]
Cursor: TypeAlias = Annotated[str | None, "next_cursor of the previous page."]
Prefix: TypeAlias = Annotated[str | None, "Only sessions whose id begins with this."]


class Reading:
    """The tools that change nothing. Each answer is one page of bounded size."""

    def __init__(self, storage: Storage, marker: Marker) -> None:
        self._storage = storage
        self._marker = marker
        self._items = Items(marker)

    async def overview(self) -> Answer:
        """Count sessions, queued input, dead letters, processes and open waits by state."""
        return {"counts": plain(await self._storage.counts())}

    async def list_sessions(
        self,
        prefix: Prefix = None,
        state: SessionState | None = None,
        agent: str | None = None,
        owner: str | None = None,
        text: Annotated[str | None, "Words of the first message or of the labels."] = None,
        cursor: Cursor = None,
        limit: Limit = 20,
    ) -> Answer:
        """List sessions (conversations), the last active first."""
        wanted = SessionFilter(prefix=prefix, state=state, agent=agent, owner=owner, text=text)
        page = await self._storage.sessions.list(wanted, with_state=True, with_counts=True, limit=limit, cursor=cursor)
        return _page([self._items.summary(each) for each in page.sessions], page.next_cursor)

    async def show_session(
        self,
        session_id: str,
        until: Annotated[str | None, "earlier of the previous answer: shows the messages before those."] = None,
        messages: Annotated[int, msgspec.Meta(ge=1, le=20, description="How many messages to return.")] = 10,
    ) -> Answer:
        """Show one session: its state, its last messages in order, its queued input and what holds it."""
        stored = self._storage.session(session_id)
        meta, read, holder, queued = await asyncio.gather(
            stored.meta(),
            stored.load(ActivePath(leaf_node_id=until, last=messages)),
            self._storage.leases.holder(session_id),
            self._storage.queue.list(session_id, limit=20),
        )
        nodes = () if read is None else read.graph.nodes
        return {
            "session_id": session_id,
            "name": self._items.name(meta.name),
            "owner": self._items.name(meta.owner),
            "labels": self._marker.json(meta.labels) if meta.labels else None,
            "created": moment(meta.created_at_ms),
            "revision": None if read is None else read.head.revision,
            "running_on": None if holder is None else holder.owner.owner_id,
            "messages": [self._items.node(node) for node in nodes],
            "earlier": nodes[0].parent_node_id if nodes else None,
            "queued": [self._items.input(each) for each in queued],
        }

    async def show_message(
        self,
        session_id: str,
        node_id: str,
        offset: Annotated[int, msgspec.Meta(ge=0, description="Where in the text to begin.")] = 0,
    ) -> Answer:
        """Show the whole text of one message, in pieces of 20,000 characters."""
        node = await self._storage.session(session_id).node(node_id)
        if node is None or not isinstance(node.entry, MessageEntry):
            raise InvalidInput(f"unknown message {node_id!r} in session {session_id!r}; see show_session")
        return self._marker.text(whole_text(node.entry.message), MOST_AT_ONCE, offset=offset)

    async def list_queue(
        self, prefix: Prefix = None, state: QueuedState | None = None, cursor: Cursor = None, limit: Limit = 20
    ) -> Answer:
        """List input that waits for a turn or is in one, the oldest first. `cancel_turn` takes the ids."""
        found = await self._storage.queue.list_all(
            prefix=prefix, state=state, limit=limit, after=_number("cursor", cursor)
        )
        return _page([self._items.queued(each) for each in found], _next(found, limit, lambda each: each.batch.seq))

    async def list_dead_letters(self, prefix: Prefix = None, cursor: Cursor = None, limit: Limit = 20) -> Answer:
        """List input that failed too often, with the reason. `requeue` takes the ids."""
        found = await self._storage.queue.dead(prefix=prefix, limit=limit, after=_number("cursor", cursor))
        return _page([self._items.letter(each) for each in found], _next(found, limit, lambda each: each.position))

    async def list_processes(
        self,
        name: str | None = None,
        status: ProcessStatus | None = None,
        started_by: Annotated[str | None, "Only processes that this session started."] = None,
        cursor: Cursor = None,
        limit: Limit = 20,
    ) -> Answer:
        """List background processes with their states, and why they failed."""
        wanted = ProcessFilter(label=name, status=status, originator_session_id=started_by)
        page = await self._storage.processes.list(wanted, with_state=True, limit=limit, cursor=cursor)
        return _page([self._items.process(each) for each in page.processes], page.next_cursor)

    async def show_process(
        self,
        process_id: str,
        after: Annotated[int, msgspec.Meta(ge=0, description="Show the events after this number.")] = 0,
        events: Limit = 20,
    ) -> Answer:
        """Show one process: its input, its outcome, and a page of its log of events."""
        record = await self._storage.processes.get(process_id)
        if record is None:
            raise ProcessNotFound(process_id)
        found = await self._storage.events.after(process_id, after, limit=events)
        projection = record.projection
        return {
            **self._items.process(record),
            "input": self._marker.json(record.registration.input),
            "outcome": self._marker.json(projection.outcome),
            "cancel_requested": projection.cancel_requested,
            "events": [self._items.event(each) for each in found],
            "next_after": found[-1].sequence if len(found) == events else None,
        }

    async def list_waits(self, cursor: Cursor = None, limit: Limit = 20) -> Answer:
        """List open waits: what agents and processes ask of a person. `approve` and `reject` take the ids."""
        found = await self._storage.waits.pending(limit=limit, after=cursor)
        asked = [self._items.wait(each) for each in found if not isinstance(each.identity, SignalIdentity)]
        return _page(asked, _next(found, limit, lambda each: each.key_id))

    async def list_acts(
        self,
        by: Annotated[str | None, "Only acts of this operator."] = None,
        session_id: str | None = None,
        cursor: Cursor = None,
        limit: Limit = 20,
    ) -> Answer:
        """List what operators did, the last first."""
        found = await self._storage.acts.list(
            by=by, session_id=session_id, limit=limit, after=_number("cursor", cursor)
        )
        return _page([self._items.act(each) for each in found], _next(found, limit, lambda each: each.position))


def _page(items: Sequence[Answer], cursor: object) -> Answer:
    """Return one page without the empty values of its items; the next one follows ``next_cursor``, if it is there."""
    kept = [{key: value for key, value in each.items() if value is not None} for each in items]
    return {"items": kept, "next_cursor": None if cursor is None else str(cursor)}


def _next(found: Sequence[T], limit: int, position: Callable[[T], object]) -> object:
    """Return the position after a page; None after the last one."""
    return position(found[-1]) if len(found) == limit else None


def _number(name: str, given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()):
        raise InvalidInput(f"expected {name} as the previous page returned it, got {given[:60]!r}")
    return int(given)
