"""A cache of bytes that a storage has loaded and verified."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_COUNT: Final = 1_024
MAX_BYTES: Final = 32 * 1024 * 1024
"""Enough for the artifacts of a busy worker, and little beside its other memory."""


class ByteCache:
    """Immutable bytes by key, bounded in number and in size; the least recently used are dropped first.

    Bytes larger than a quarter of the cache are not kept, so that one entry cannot evict all others.
    """

    def __init__(self, *, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._size = 0
        self._contents: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._size

    def __len__(self) -> int:
        return len(self._contents)

    def get(self, key: tuple[str, str]) -> bytes | None:
        content = self._contents.get(key)
        if content is not None:
            self._contents.move_to_end(key)
        return content

    def remember(self, key: tuple[str, str], content: bytes) -> None:
        """Keep the bytes as the most recently used ones."""
        if key in self._contents or len(content) > self._max_bytes // 4:
            return
        self._contents[key] = content
        self._size += len(content)
        while len(self._contents) > self._max_count or self._size > self._max_bytes:
            _, dropped = self._contents.popitem(last=False)
            self._size -= len(dropped)

    def forget(self, key: tuple[str, str]) -> None:
        content = self._contents.pop(key, None)
        if content is not None:
            self._size -= len(content)
