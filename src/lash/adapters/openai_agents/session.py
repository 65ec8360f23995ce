"""A session of OpenAI's Agents SDK in a lash storage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

from agents.items import TResponseInputItem
from agents.memory.session import SessionABC, _CompactionSnapshot
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from lash.adapters.attached import Attached, StorageSource
from lash.adapters.formats.openai_items import LABELS, Item, lash_id, nodes_of
from lash.adapters.histories import histories_of, path_of
from lash.adapters.openai_agents.items import below, items_of, new_bodies
from lash.adapters.openai_agents.turn_session import TurnSession
from lash.errors import InvalidInput, RevisionConflict, SessionDeleted, SessionNotFound
from lash.model.session.commit import Append, Commit, GraphDelta, Unchanged
from lash.model.session.node import Node, RawNode
from lash.model.session.session import Retention
from lash.runtime.turns.turn import Turn
from lash.stores.session import Session
from lash.stores.storage import Storage

T = TypeVar("T")

_GONE: Final = (SessionNotFound, SessionDeleted)


class LashSession(SessionABC):
    """The history of a conversation: ``Runner.run(agent, "hello", session=LashSession("user-1", "sqlite:///chat.db"))``.

    It takes a storage URL or an open storage. Items that are added together are stored together or not at all, by any
    number of processes at once. Removed items stay in the graph of the session, off its path; `clear_session` deletes
    everything.
    """

    def __init__(
        self,
        session_id: str,
        source: StorageSource = "sqlite://",
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self._attached = Attached(source)
        self._name = lash_id(session_id)
        self._is_closed = False

    @staticmethod
    def of(turn: Turn) -> TurnSession:
        """Return the session of a turn, for `LashRunner`: what a run adds is part of the turn's commit."""
        return TurnSession(turn)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, or the last ``limit`` of them, in order."""
        wanted = resolve_session_limit(limit, self.session_settings)
        if wanted == 0:
            return []
        last = wanted if wanted is not None and wanted > 0 else None
        items: list[Any] = items_of(await self._run(lambda storage: self._read(storage, last)))
        return items

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, all or none; a cancelled call waits until they are stored."""
        self._check_open()
        if items:
            nodes = nodes_of(cast("list[Item]", items))
            try:
                await self._settle(lambda storage: self._append(storage, nodes))
            except InvalidInput as error:
                # What the SDK's own sessions raise for an item that is not JSON.
                raise TypeError(str(error)) from error

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None if there is none."""
        return await self._pop_item_with_validation()

    async def clear_session(self) -> None:
        """Delete the session with all its items."""
        await self._settle(self._delete)

    def close(self) -> None:
        """Refuse further calls. The storage stays open for others."""
        self._is_closed = True

    async def _pop_item_with_validation(
        self, validate: Callable[[TResponseInputItem], None] | None = None
    ) -> TResponseInputItem | None:
        """Remove the last item unless the function raises; the SDK calls it to take back a turn."""
        popped = await self._settle(lambda storage: self._pop(storage, validate), may_block=validate is not None)
        return cast("TResponseInputItem | None", popped)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """Return the end of the history, and a function that replaces a part of it if nothing has changed since."""
        read = await self._run(lambda storage: self._read_tail(storage, limit + 1))
        if read is None:
            return _CompactionSnapshot([], True, _refuse)
        revision, nodes = read
        is_complete, nodes = len(nodes) <= limit, nodes[-limit:]

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            if not nodes[start:]:
                return False
            new = nodes_of(cast("list[Item]", output))
            change = self._replace(revision, nodes[start].parent_node_id, new, prune_prefix)
            return await self._settle(change, may_block=prune_prefix is not None)

        items: list[Any] = items_of(_bodies(nodes))
        return _CompactionSnapshot(items, is_complete, replace_suffix)

    async def _run(self, use: Callable[[Storage], Awaitable[T]]) -> T:
        self._check_open()
        return await self._attached.run(use)

    async def _settle(self, use: Callable[[Storage], Awaitable[T]], *, may_block: bool = False) -> T:
        """Return the result of a write; a cancelled caller gets CancelledError once the write has ended."""
        self._check_open()
        return await self._attached.settle(use, may_block=may_block)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{type(self).__name__} is closed")

    async def _read(self, storage: Storage, last: int | None) -> list[bytes]:
        """Return the nodes of the last items, or of all, as JSON.

        They come from memory if the session is at the head at which they were remembered.
        """
        histories, session = histories_of(storage), storage.session(self._name)
        try:
            if last is not None and self._name not in histories:
                return _bodies(await session.raw_path(last=last))
            head = await session.head()
            if head is None:
                return []
            known = histories.find(self._name, head)
            if known is not None:
                return known[-last:] if last is not None else known.copy()
            if last is not None:
                return _bodies(await session.raw_path(last=last))
            bodies = _bodies(await path_of(session, head))
        except _GONE:
            return []
        histories.keep(self._name, head, bodies.copy())
        return bodies

    async def _append(self, storage: Storage, nodes: Sequence[Node]) -> None:
        try:
            await self._append_once(storage, nodes)
        except _GONE:
            await storage.sessions.create(self._name, labels=LABELS, retention=Retention.latest())
            await self._append_once(storage, nodes)

    async def _append_once(self, storage: Storage, nodes: Sequence[Node]) -> None:
        # Encoded here, where the append encodes them too: the caller may change the items later.
        bodies = new_bodies(nodes)
        # Each run of an agent begins with the whole history, often in a process that has not read it before.
        appended = await storage.session(self._name).append(nodes, often_read=True)
        histories_of(storage).extend(self._name, appended, nodes[-1].node_id, bodies)

    async def _delete(self, storage: Storage) -> None:
        await storage.sessions.delete(self._name)
        histories_of(storage).forget(self._name)

    async def _pop(self, storage: Storage, validate: Callable[[TResponseInputItem], None] | None) -> Item | None:
        session = storage.session(self._name)
        while True:
            try:
                revision, path = await session.revision(), await session.raw_path(last=1)
                if not path:
                    return None
                (item,) = items_of(_bodies(path))
                if validate is not None:
                    validate(cast("TResponseInputItem", item))
                await _commit(session, revision, Unchanged(leaf_node_id=path[0].parent_node_id))
            except RevisionConflict:
                # Another caller has added or removed an item.
                continue
            except _GONE:
                return None
            return item

    async def _read_tail(self, storage: Storage, last: int) -> tuple[int, tuple[RawNode, ...]] | None:
        session = storage.session(self._name)
        try:
            while True:
                revision, nodes = await session.revision(), await session.raw_path(last=last)
                if await session.revision() == revision:
                    return revision, nodes
        except _GONE:
            return None

    def _replace(
        self,
        revision: int,
        parent_id: str | None,
        new: Sequence[Node],
        prune_prefix: Callable[[TResponseInputItem], bool] | None,
    ) -> Callable[[Storage], Awaitable[bool]]:
        async def replace(storage: Storage) -> bool:
            session = storage.session(self._name)
            graph = Append(nodes=below(parent_id, new)) if new else Unchanged(leaf_node_id=parent_id)
            try:
                await _commit(session, revision, graph)
                if prune_prefix is not None:
                    await _erase_prefix(session, parent_id, prune_prefix)
            except (RevisionConflict, *_GONE):
                return False
            return True

        return replace


async def _erase_prefix(session: Session, last_id: str | None, prune: Callable[[TResponseInputItem], bool]) -> None:
    """Erase the first items of a history, as far as the function says so; the path up to a node is looked at."""
    if last_id is None:
        return
    pruned: list[str] = []
    for node in await session.raw_path(leaf_node_id=last_id):
        (item,) = items_of([node.body])
        if not prune(cast("TResponseInputItem", item)):
            break
        pruned.append(node.node_id)
    if pruned:
        await session.erase(pruned)


def _bodies(nodes: Iterable[RawNode]) -> list[bytes]:
    return [node.body for node in nodes]


async def _commit(session: Session, revision: int, graph: GraphDelta) -> None:
    await session.commit(Commit(session_id=session.session_id, expected_revision=revision, graph=graph))


async def _refuse(_start: int, _output: list[TResponseInputItem]) -> bool:
    return False
