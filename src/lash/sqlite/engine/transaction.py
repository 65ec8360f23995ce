"""The database as a body sees it: named queries in, typed rows out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn, TypeVar

import apsw
import msgspec

from lash.base.seal import Seals
from lash.base.shapes import convert, convert_all
from lash.errors import ConfigError, CorruptData, LashError
from lash.sqlite.engine.options import SQLiteValue
from lash.sqlite.engine.statements import Statements

T = TypeVar("T")
_FEW: Final = 200
"""So many rows are shaped by one call, which takes a third of the time of a call for each."""


class Reader:
    """One consistent snapshot, usable by the body that received it until that body returns."""

    __slots__ = ("_cursor", "_statements", "_usable", "now_ms")

    now_ms: int
    """The clock, read when the body started."""

    def __init__(self, connection: apsw.Connection, statements: Statements, now_ms: int) -> None:
        # One cursor for all queries: each is read to its end, and a new cursor would cost as much as a short query.
        self._cursor = connection.cursor()
        self._statements = statements
        self._usable = True
        self.now_ms = now_ms

    @property
    def seals(self) -> Seals:
        """What seals the values of this database."""
        return self._statements.seals

    def one(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> T | None:
        """Run the query and return its only row in the given shape, None when there is no row.

        The shape is a `msgspec.Struct` with ``array_like=True`` whose fields are the columns in order. A row that
        does not fit, or a second row, is `CorruptData`.
        """
        rows = self._rows(name, parameters)
        if not rows:
            return None
        if len(rows) > 1:
            raise CorruptData(f"query {name} returned {len(rows)} rows, expected at most one")
        row, seals = _shaped(rows[0], shape, name), self._statements.seals
        return seals.open_row(row) if seals.is_active else row

    def all(self, shape: type[T], name: str, /, **parameters: SQLiteValue) -> list[T]:
        """Run the query and return all its rows in the given shape; see `one`."""
        return self.shaped(shape, name, parameters)

    def shaped(self, shape: type[T], name: str, parameters: Mapping[str, SQLiteValue]) -> list[T]:
        """Do the same with the parameters in a mapping."""
        rows = self._rows(name, parameters)
        if not rows:
            return []
        if len(rows) <= _FEW:
            shaped = _all_shaped(rows, shape, name)
        else:
            # Rows are freed a few at a time: freeing very many at once would stop all threads for that time.
            shaped = []
            rows.reverse()
            while rows:
                shaped += _all_shaped(rows[: -_FEW - 1 : -1], shape, name)
                del rows[-_FEW:]
        seals = self._statements.seals
        return [seals.open_row(row) for row in shaped] if seals.is_active else shaped

    def any(self, name: str, rows: Sequence[Mapping[str, SQLiteValue]]) -> bool:
        """Run the query once for each mapping of parameters, and return whether any of them returned a row."""
        if not self._usable:
            self._refuse()
        return bool(rows) and bool(self._statements.run_many(self._cursor, name, rows))

    def end(self) -> None:
        """Refuse every further use."""
        self._usable = False

    def abandon(self) -> None:
        """Stop the query that failed half-way."""
        self._usable = False
        self._cursor.close(force=True)

    def _rows(self, name: str, parameters: Mapping[str, SQLiteValue]) -> list[tuple[apsw.SQLiteValue, ...]]:
        if not self._usable:
            self._refuse()
        return self._statements.run(self._cursor, name, parameters)

    def _refuse(self) -> NoReturn:
        raise ConfigError("a reader or transaction was used after its body had returned")


class Transaction(Reader):
    """One body's part of a write transaction: applied whole, together with the commit, or not at all."""

    __slots__ = ("_connection", "_loss")

    def __init__(self, connection: apsw.Connection, statements: Statements, now_ms: int) -> None:
        super().__init__(connection, statements, now_ms)
        self._connection = connection
        self._loss: LashError | None = None

    def run(self, name: str, /, **parameters: SQLiteValue) -> int:
        """Run an insert, update or delete and return how many rows it changed."""
        self._rows(name, parameters)
        return self._connection.changes()

    def run_many(self, name: str, rows: Iterable[Mapping[str, SQLiteValue]]) -> None:
        """Run the query once for each mapping of parameters, in order; the hook is called once."""
        given = list(rows)
        if not self._usable:
            self._refuse()
        if given:
            try:
                self._statements.run_many(self._cursor, name, given)
            except LashError as error:
                self._note_loss(error)
                raise

    def check_not_lost(self) -> None:
        """Raise the error for which SQLite rolled the whole transaction back, if it did."""
        if self._loss is not None:
            raise self._loss

    def _rows(self, name: str, parameters: Mapping[str, SQLiteValue]) -> list[tuple[apsw.SQLiteValue, ...]]:
        if not self._usable:
            self._refuse()
        try:
            return self._statements.run(self._cursor, name, parameters)
        except LashError as error:
            self._note_loss(error)
            raise

    def _refuse(self) -> NoReturn:
        self.check_not_lost()
        super()._refuse()

    def _note_loss(self, error: LashError) -> None:
        """Remember the error if SQLite rolled the whole transaction back because of it."""
        # Without the transaction, a body that swallowed the error would commit statement by statement.
        if self._connection.get_autocommit():
            self._usable = False
            self._loss = error


def _all_shaped(rows: list[tuple[apsw.SQLiteValue, ...]], shape: type[T], name: str) -> list[T]:
    try:
        return convert_all(rows, shape)
    except msgspec.ValidationError as error:
        raise CorruptData(f"query {name}: expected rows of {shape.__name__}, got others: {error}") from error


def _shaped(row: tuple[apsw.SQLiteValue, ...], shape: type[T], name: str) -> T:
    try:
        return convert(row, shape, strict=False)
    except msgspec.ValidationError as error:
        raise CorruptData(f"query {name}: expected a row of {shape.__name__}, got another: {error}") from error
