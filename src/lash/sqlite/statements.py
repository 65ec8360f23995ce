"""The named queries of a database, checked before they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import apsw

from lash.errors import CorruptData, InvalidInput
from lash.sqlite.errors import UNSTORABLE, translate
from lash.sqlite.options import SQLiteValue, StatementHook

_CONTROL = {
    "begin": "BEGIN IMMEDIATE",
    "savepoint": "SAVEPOINT body",
    "rollback": "ROLLBACK TO body",
    "release": "RELEASE body",
    "commit": "COMMIT",
}


class Statements:
    """Runs named queries on a connection; safe to share between threads."""

    def __init__(self, queries: Mapping[str, str], hook: StatementHook | None) -> None:
        self._queries = queries
        self._hook = hook
        self._parameters: dict[str, AbstractSet[str]] = {}

    def teach(self, queries: Mapping[str, str]) -> None:
        """Add named queries; those of a name that is known already are replaced."""
        self._queries = {**self._queries, **queries}

    def announce(self, name: str) -> None:
        """Tell the hook what is about to run."""
        if self._hook is not None:
            self._hook(name)

    def control(self, connection: apsw.Connection, name: str) -> None:
        """Run one statement of transaction control; errors of the driver come out as they are."""
        self.announce(name)
        connection.execute(_CONTROL[name])

    def begin_read(self, connection: apsw.Connection) -> None:
        """Open a transaction that takes its snapshot with the first query."""
        self.announce("begin")
        connection.execute("BEGIN DEFERRED")

    def run(
        self, connection: apsw.Connection, name: str, parameters: Mapping[str, SQLiteValue]
    ) -> list[tuple[apsw.SQLiteValue, ...]]:
        """Run one query to its end and return its rows; raise errors of lash only.

        A missing or surplus parameter is a mistake of the caller and raises `TypeError`, an unknown query
        `LookupError`.
        """
        if parameters.keys() != self._parameters.get(name):
            self._check(connection, name, parameters)
        if self._hook is not None:
            self._tell_hook(name)
        try:
            return connection.execute(self._queries[name], parameters).fetchall()
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error
        except UnicodeDecodeError as error:
            # Parameters are encoded, never decoded: this is a stored text that somebody else has written.
            raise CorruptData(f"query {name}: a stored text is no UTF-8: {error}") from error
        except UNSTORABLE as error:
            raise InvalidInput(f"query {name}: a parameter cannot be stored: {error}") from error

    def run_many(
        self, connection: apsw.Connection, name: str, rows: Sequence[Mapping[str, SQLiteValue]]
    ) -> list[tuple[apsw.SQLiteValue, ...]]:
        """Run one query for each of some mappings of parameters, all of one form, and return what it found.

        It is announced once.
        """
        if rows[0].keys() != self._parameters.get(name):
            self._check(connection, name, rows[0])
        if self._hook is not None:
            self._tell_hook(name)
        try:
            return connection.executemany(self._queries[name], rows).fetchall()
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error
        except UNSTORABLE as error:
            raise InvalidInput(f"query {name}: a parameter cannot be stored: {error}") from error

    def _tell_hook(self, name: str) -> None:
        try:
            self.announce(name)
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error

    def _check(self, connection: apsw.Connection, name: str, parameters: Mapping[str, SQLiteValue]) -> None:
        """Learn what the query asks for, if that is not known, and refuse other parameters."""
        try:
            expected = self._parameters.get(name) or self._learn(connection, name)
        except apsw.Error as error:
            raise translate(error, f"query {name}") from error
        if parameters.keys() != expected:
            raise TypeError(_disagreement(name, expected, parameters.keys()))

    def _learn(self, connection: apsw.Connection, name: str) -> AbstractSet[str]:
        if name not in self._queries:
            raise LookupError(f"there is no query {name!r}")
        asked = _Asked()
        # Explaining a statement prepares and binds it, but does not run it.
        connection.execute(self._queries[name], asked, explain=2).fetchall()
        self._parameters[name] = frozenset(asked.names)
        return self._parameters[name]


class _Asked(dict[str, None]):
    """Parameters that give NULL for every name, and remember which names were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __missing__(self, name: str) -> None:
        self.names.add(name)


def _disagreement(name: str, expected: AbstractSet[str], given: AbstractSet[str]) -> str:
    missing, surplus = sorted(expected - given), sorted(given - expected)
    return f"query {name}: missing parameters {missing}, surplus parameters {surplus}"
