"""Raw rows of a storage, for moving a whole storage; nothing else should use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

RowValue: TypeAlias = int | str | bytes | None
"""A value that both backends can hold; a boolean is 0 or 1."""
Row: TypeAlias = tuple[RowValue, ...]
"""The values of a row, in the order of its table's columns."""


class RowTable(msgspec.Struct, frozen=True):
    """A table that is moved: the columns that both backends have, and the columns of its key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class RowStore(Protocol):
    """Reads and writes rows without interpreting them."""

    @property
    def is_sealed(self) -> bool:
        """Whether the storage has a sealer."""
        ...

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables that are moved, each after the tables that its rows refer to; the same on every backend."""
        ...

    async def schema_number(self) -> int:
        """Return the number of the last migration.

        Raises `NewerSchema` if this version does not know it, even if it is additive: what it added would be left out.
        """
        ...

    async def count(self, table: RowTable) -> int:
        """Return the exact number of rows."""
        ...

    async def pulse(self) -> tuple[int, ...]:
        """Return counters of which at least one differs after any work on the storage, even if no count does."""
        ...

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        """Return the rows after a key, ordered by key; from the first row if ``after`` is None. Values are unsealed."""
        ...

    async def read_stored(self, table: RowTable, after: Row | None, limit: int) -> list[Row]:
        """Return the same rows with their values as they are stored."""
        ...

    def unsealed(self, table: RowTable, row: Row) -> Row:
        """Return a stored row with its values unsealed, or raise CannotUnseal."""
        ...

    async def reseal(self, table: RowTable, rows: Sequence[Row]) -> int:
        """Seal the values of these stored rows again that are not sealed with the current key; return how many rows.

        A row that was changed since it was read stays as it is.
        """
        ...

    async def sequences(self) -> dict[str, int]:
        """Return the last number that each table with generated numbers has assigned, even if its row is gone.

        Raises `ConfigError` if the role may not read these numbers, or may not set them as `finish` does.
        """
        ...

    async def mark(self) -> bytes | None:
        """Return the mark that the last `begin` or `write` of an unfinished move left, or None."""
        ...

    async def begin(self, mark: bytes) -> None:
        """Mark the start of a move into this empty storage, and remove the secret that the storage may have made.

        A new epoch of the change feed begins: cursors of the source get a gap.

        Raises `Conflict`, like the calls below, if another move has left a mark meanwhile.
        """
        ...

    async def write(self, table: RowTable, rows: Sequence[Row], *, before: bytes, mark: bytes) -> None:
        """Add rows and replace the mark, in one transaction; ``before`` is the mark that the caller left last."""
        ...

    async def finish(self, sequences: Mapping[str, int], *, before: bytes) -> None:
        """Let new numbers start above the given ones and remove the mark, in one transaction."""
        ...


@runtime_checkable
class HasRows(Protocol):
    """A storage that can be moved."""

    @property
    def rows(self) -> RowStore: ...


class TableSequence(msgspec.Struct, frozen=True, array_like=True):
    """The last number that a table has assigned, None before the first; ``allowed``: the role may read and set it."""

    table: str
    number: int | None
    allowed: bool


class RawRows(Protocol):
    """The rows of one database; `lash.backend.table_rows.MovableRows` makes a `RowStore` of them.

    Each writing method is one transaction, which raises `Conflict` unless the mark is the expected one.
    """

    def prepare(self) -> tuple[RowTable, ...]:
        """Return the tables that are moved, after preparing the queries about them."""
        ...

    async def number(self, query: str) -> int | None:
        """Return the number that a query finds."""
        ...

    async def pulse(self) -> tuple[int, ...]: ...

    async def read(self, table: RowTable, after: Row | None, limit: int) -> list[Row]: ...

    async def replace(self, table: RowTable, rows: Sequence[tuple[Row, Row]]) -> int:
        """Write the sealed columns of the second of two rows where the first is still stored; return how many were."""
        ...

    async def sequences(self) -> list[TableSequence]: ...

    async def mark(self) -> bytes | None: ...

    async def begin(self, mark: bytes) -> None: ...

    async def write(self, table: RowTable, rows: Sequence[Row], before: bytes, mark: bytes) -> None: ...

    async def finish(self, sequences: Mapping[str, int], before: bytes) -> None: ...
