"""Runs the named queries of a database, after checking their parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

import apsw

from lash.base.seal import PLAIN, Seals
from lash.errors import CorruptData, InvalidInput
from lash.sqlite.engine.errors import UNSTORABLE, translate
from lash.sqlite.engine.options import SQLiteValue, StatementHook
from lash.sqlkit.queries import compact

_CONTROL = {
    "begin": "BEGIN IMMEDIATE",
    "savepoint": "SAVEPOINT body",
    "rollback": "ROLLBACK TO body",
    "release": "RELEASE body",
    "commit": "COMMIT",
}

_Values: TypeAlias = tuple[SQLiteValue, ...]


class _Query(NamedTuple):
    """A query and its parameters, in SQLite's order."""

    text: str
    names: tuple[str, ...]
    values_in: Callable[[Mapping[str, SQLiteValue]], _Values]
    """Puts parameters into that order; letting the driver look up each name takes twice as long."""


class Statements:
    """Runs named queries on a cursor; safe to share between threads."""

    def __init__(self, queries: Mapping[str, str], hook: StatementHook | None, seals: Seals = PLAIN) -> None:
        self.seals = seals
        self._texts = queries
        self._hook = hook
        self._queries: dict[str, _Query] = {}

    def add_queries(self, queries: Mapping[str, str]) -> None:
        """Add named queries; a query of the same name is replaced."""
        self._texts = {**self._texts, **queries}
        self._queries = {name: query for name, query in self._queries.items() if name not in queries}

    def announce(self, name: str) -> None:
        """Call the hook with the statement that is about to run."""
        if self._hook is not None:
            self._hook(name)

    def control(self, connection: apsw.Connection, name: str) -> None:
        """Run one statement of transaction control; errors of the driver are not translated."""
        self.announce(name)
        connection.execute(_CONTROL[name])

    def begin_read(self, connection: apsw.Connection) -> None:
        """Open a transaction that takes its snapshot with the first query."""
        self.announce("begin")
        connection.execute("BEGIN DEFERRED")

    def run(
        self, cursor: apsw.Cursor, name: str, parameters: Mapping[str, SQLiteValue]
    ) -> list[tuple[apsw.SQLiteValue, ...]]:
        """Run one query to its end and return its rows; raise errors of lash only.

        A missing or surplus parameter is a mistake of the caller and raises `TypeError`, an unknown query
        `LookupError`.
        """
        query = self._queries.get(name) or self._prepare(cursor, name)
        values = _in_order(name, query, parameters)
        if self._hook is not None:
            self._call_hook(name)
        try:
            return cursor.execute(query.text, values).fetchall()
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error
        except UnicodeDecodeError as error:
            # Parameters are encoded, never decoded: this is a stored text, written by another program.
            raise CorruptData(f"query {name}: expected UTF-8 in a stored text: {error}") from error
        except UNSTORABLE as error:
            raise InvalidInput(f"query {name}: a parameter cannot be stored: {error}") from error

    def run_many(
        self, cursor: apsw.Cursor, name: str, rows: Sequence[Mapping[str, SQLiteValue]]
    ) -> list[tuple[apsw.SQLiteValue, ...]]:
        """Run one query for each of some mappings of parameters, all with the same names, and return all rows.

        The hook is called once.
        """
        query = self._queries.get(name) or self._prepare(cursor, name)
        values = [_in_order(name, query, row) for row in rows]
        if self._hook is not None:
            self._call_hook(name)
        try:
            return cursor.executemany(query.text, values).fetchall()
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error
        except UNSTORABLE as error:
            raise InvalidInput(f"query {name}: a parameter cannot be stored: {error}") from error

    def _call_hook(self, name: str) -> None:
        try:
            self.announce(name)
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error

    def _prepare(self, cursor: apsw.Cursor, name: str) -> _Query:
        if name not in self._texts:
            raise LookupError(f"unknown query {name!r}")
        asked = _AskedNames()
        # The driver hashes the whole text of a statement each time.
        text = compact(self._texts[name])
        try:
            # Explaining a statement prepares and binds it, but does not run it.
            cursor.execute(text, asked, explain=2).fetchall()
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error
        names = tuple(asked.names)
        query = self._queries[name] = _Query(text, names, _picker(names))
        return query


class _AskedNames(dict[str, None]):
    """Parameters that are NULL for every name, and remember the names in the order of their look-up."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def __missing__(self, name: str) -> None:
        self.names[name] = None


def _picker(names: tuple[str, ...]) -> Callable[[Mapping[str, SQLiteValue]], _Values]:
    if len(names) > 1:
        return operator.itemgetter(*names)
    # itemgetter returns a bare value for one name, and does not take none.
    return lambda parameters: tuple(parameters[name] for name in names)


def _in_order(name: str, query: _Query, parameters: Mapping[str, SQLiteValue]) -> _Values:
    try:
        if len(parameters) == len(query.names):
            return query.values_in(parameters)
    except KeyError:
        pass
    raise TypeError(_disagreement(name, set(query.names), parameters.keys()))


def _disagreement(name: str, expected: AbstractSet[str], given: AbstractSet[str]) -> str:
    missing, surplus = sorted(expected - given), sorted(given - expected)
    return f"query {name}: missing parameters {missing}, unexpected parameters {surplus}"
