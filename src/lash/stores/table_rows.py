"""The rows of a storage as they are, for moving a whole storage; nothing else should use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from lash.errors import Conflict

RowValue: TypeAlias = int | str | bytes | None
"""What both backends can hold; a boolean is 0 or 1."""
Row: TypeAlias = tuple[RowValue, ...]
"""The values of a row in the order of its table's columns."""


class RowTable(msgspec.Struct, frozen=True):
    """A table that is moved: the columns that both backends have, and those of them that tell its rows apart."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class RowStore(Protocol):
    """Reads and writes rows without looking at what they mean."""

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """What is moved, every table behind those that its rows refer to; the same names and columns everywhere."""
        ...

    async def schema_number(self) -> int:
        """Return the number of the last migration."""
        ...

    async def count(self, table: RowTable) -> int:
        """Return how many rows there are, exactly."""
        ...

    async def pulse(self) -> tuple[int, ...]:
        """Return numbers of which one is another after work was done with the storage, be the counts the same."""
        ...

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        """Return the rows behind the given key, in the order of keys; without one, from the first."""
        ...

    async def sequences(self) -> dict[str, int]:
        """Return the last number that each table with numbers of its own has given, be its row still there or not.

        Raises `ConfigError` where the server would not let it be read, or set by `finish`.
        """
        ...

    async def mark(self) -> bytes | None:
        """Return what the last `begin` or `write` of an unfinished move noted."""
        ...

    async def begin(self, mark: bytes) -> None:
        """Note that a move into this empty storage begins, and forget the secret that it may have made for itself.

        Raises `Conflict`, like the calls below, if another move has noted something meanwhile.
        """
        ...

    async def write(self, table: RowTable, rows: Sequence[Row], *, before: bytes, mark: bytes) -> None:
        """Add rows and note how far the move is, in one transaction; ``before`` is what was noted last."""
        ...

    async def finish(self, sequences: Mapping[str, int], *, before: bytes) -> None:
        """Let new numbers start above the given ones and drop the note, in one transaction."""
        ...


def require_noted(changed: int) -> None:
    """Raise Conflict unless the note was changed."""
    if changed != 1:
        raise Conflict("another move into this storage is under way; wait until it ends, then look again")


@runtime_checkable
class HasRows(Protocol):
    """A storage that can be moved."""

    @property
    def rows(self) -> RowStore: ...
