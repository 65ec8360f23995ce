"""Histories that this process has read or added to, as JSON, so that a long one is not read again for every turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from lash.model.session.commit import AppendResult
from lash.model.session.node import RawNode
from lash.model.session.session import SessionHead
from lash.stores.session import Session
from lash.stores.storage import Storage

_MAX_BYTES: Final = 32 * 1024 * 1024
"""The items that a process keeps of one storage."""


class _History:
    """The items of the path to a leaf, as they were at a revision."""

    __slots__ = ("items", "leaf", "revision", "size")

    def __init__(self, revision: int, leaf: str | None, items: list[bytes]) -> None:
        self.revision = revision
        self.leaf = leaf
        self.items = items
        self.size = sum(map(len, items))


class Histories:
    """The histories of one storage that were used last. Each holds at the head for which it was kept, and no other.

    Every change of a session publishes a revision. A session that was deleted and created again reaches the same
    revision with another leaf.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._histories: OrderedDict[str, _History] = OrderedDict()
        self._size = 0

    def __contains__(self, name: str) -> bool:
        return name in self._histories

    def find(self, name: str, head: SessionHead) -> list[bytes] | None:
        """Return all items of a session at its head; None if they must be read from the storage.

        It is the list that later items are added to.
        """
        known = self._histories.get(name)
        if known is None or known.revision != head.revision or known.leaf != head.leaf_node_id:
            return None
        self._histories.move_to_end(name)
        return known.items

    def keep(self, name: str, head: SessionHead, items: list[bytes]) -> None:
        """Remember all items of a session at its head."""
        self._keep(name, _History(head.revision, head.leaf_node_id, items))

    def extend(self, name: str, appended: AppendResult, leaf: str, items: Sequence[bytes] | None) -> None:
        """Remember items that were added, if nothing else has changed the session since it was known."""
        known = self._histories.get(name)
        if items is None:
            self.forget(name)
        elif appended.parent_node_id is None:
            self._keep(name, _History(appended.revision, leaf, list(items)))
        elif known is None or known.revision != appended.revision - 1 or known.leaf != appended.parent_node_id:
            self.forget(name)
        else:
            self._grow(name, known, items)
            known.revision, known.leaf = appended.revision, leaf

    def forget(self, name: str) -> None:
        known = self._histories.pop(name, None)
        self._size -= 0 if known is None else known.size

    def _keep(self, name: str, history: _History) -> None:
        self.forget(name)
        self._histories[name] = history
        self._size += history.size
        self._make_room()

    def _grow(self, name: str, known: _History, items: Sequence[bytes]) -> None:
        size = sum(map(len, items))
        known.items += items
        known.size += size
        self._size += size
        self._histories.move_to_end(name)
        self._make_room()

    def _make_room(self) -> None:
        while self._size > self._max_bytes:
            self.forget(next(iter(self._histories)))


async def path_of(session: Session, head: SessionHead, last: int | None = None) -> tuple[RawNode, ...]:
    """Return the last nodes of a revision, or all, also if it is not the current one: the path to a node stays.

    A path has no more nodes than its session, and a storage reads few nodes without a thread.
    """
    if head.leaf_node_id is None:
        return ()
    last = head.node_count + 1 if last is None else last
    # The end of the current path is the cheapest read.
    nodes = await session.raw_path(last=last)
    if nodes and nodes[-1].node_id == head.leaf_node_id:
        return nodes
    return await session.raw_path(leaf_node_id=head.leaf_node_id, last=last)


_BY_STORAGE: Final[WeakKeyDictionary[Storage, Histories]] = WeakKeyDictionary()


def histories_of(storage: Storage) -> Histories:
    """Return the histories of a storage. Only in its event loop."""
    return _BY_STORAGE.setdefault(storage, Histories())
