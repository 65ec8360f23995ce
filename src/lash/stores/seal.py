"""The port of the mark of a sealed storage."""

from __future__ import annotations

from typing import Protocol


class SealRows(Protocol):
    """The mark of one database: a known value as it was sealed."""

    async def mark(self) -> bytes | None:
        """Return the mark; None if the storage never had a sealer."""
        ...

    async def keep_mark(self, sealed: bytes) -> None:
        """Write the mark, or replace it."""
        ...
