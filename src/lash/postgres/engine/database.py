"""The PostgreSQL engine: named statements, one round trip each, repeated where that is safe. It knows no table."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from lash.base.backoff import backoff, jitter
from lash.errors import ConfigError, CorruptData, StorageClosed
from lash.postgres.engine.driver import asyncpg
from lash.postgres.engine.errors import DRIVER_ERRORS, Phase, Remedy, is_unsent, pool_failure, remedy_for, translate
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import Connections, check_server

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PlainConnection, PooledConnection

T = TypeVar("T")

StatementHook = Callable[[str], None]
"""Called with the name of each statement (and ``begin``, ``commit``, ``rollback``, ``script``) before it is sent."""

MAX_TRIES = 5
_LONGEST_PAUSE_S = 1.0
# Beyond the server's own limit on a statement, for a network that swallows the answer.
_ANSWER_GRACE_S = 5.0


class Database:
    """Runs named statements on a pool of connections.

    A call belongs to the event loop and the process in which the database was opened. A caller that is cancelled gets
    its cancellation at once; the statement it had sent is then applied whole or not at all.
    """

    def __init__(
        self,
        connections: Connections,
        options: PostgresOptions,
        queries: Mapping[str, str],
        on_statement: StatementHook | None,
    ) -> None:
        self.options = options
        self._connections = connections
        self._queries = queries
        self._on_statement = on_statement
        self._answer_limit_s = options.statement_timeout_ms / 1000 + _ANSWER_GRACE_S
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closed = False

    @classmethod
    async def open(
        cls,
        options: PostgresOptions,
        *,
        queries: Mapping[str, str],
        pool: asyncpg.Pool[asyncpg.Record] | None = None,
        on_statement: StatementHook | None = None,
    ) -> Self:
        """Connect once and look whether the server will do.

        A ``pool`` of the caller is used as it is and never closed. Raises :class:`ConfigError` for a server that is
        too old, is not UTF8 or refuses the login, and :class:`StoreUnavailable` for one that does not answer.
        """
        database = cls(Connections(options, pool), options, queries, on_statement)
        try:
            await database._meet_server()
        except BaseException:
            database._closed = True
            database._connections.terminate()
            raise
        return database

    async def read_one(self, shape: type[T], name: str, *args: object) -> T | None:
        """Run one statement that changes nothing and return its first row, or nothing."""
        rows = await self._fetch(name, args, reads=True, repeatable=True)
        return _shaped(shape, name, rows[0]) if rows else None

    async def read_all(self, shape: type[T], name: str, *args: object) -> list[T]:
        """Run one statement that changes nothing and return its rows."""
        rows = await self._fetch(name, args, reads=True, repeatable=True)
        return [_shaped(shape, name, row) for row in rows]

    async def write_one(self, shape: type[T], name: str, *args: object, repeatable: bool) -> T | None:
        """Run one statement that commits by itself and return its row, or nothing.

        ``repeatable`` says that running it twice is harmless, because its guard refuses the second time or because it
        is idempotent: it is then repeated after a lost connection. Otherwise that raises :class:`StoreUnavailable`
        with ``outcome_unknown``.
        """
        rows = await self._fetch(name, args, reads=False, repeatable=repeatable)
        return _shaped(shape, name, rows[0]) if rows else None

    async def write_all(self, shape: type[T], name: str, *args: object, repeatable: bool) -> list[T]:
        """Run one statement that commits by itself and return its rows; see :meth:`write_one`."""
        rows = await self._fetch(name, args, reads=False, repeatable=repeatable)
        return [_shaped(shape, name, row) for row in rows]

    async def whisper(self, name: str, *args: object) -> None:
        """Run one statement that belongs to no operation and may be lost: not announced, not repeated."""
        text = self.statement(name)
        try:
            await self._ask(None, text, args)
        except DRIVER_ERRORS as error:
            raise self.failure(error, Phase.STATEMENT, name) from error

    @property
    def can_listen(self) -> bool:
        """Whether `connect_beside_pool` gives a connection that hears notifications."""
        return self._connections.can_listen

    async def connect_beside_pool(self) -> PlainConnection:
        """Open a connection of the caller's own, not counted in the pool and not closed with it.

        Its errors are still the driver's.
        """
        return await self._connections.connect_beside_pool()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a read-committed transaction; it commits when the block ends and rolls back when the block raises.

        The block is not repeated: a deadlock in it raises :class:`StoreUnavailable`, and the caller begins anew. A
        connection lost during the COMMIT raises it with ``outcome_unknown``.
        """
        connection = await self._connect()
        try:
            await self._begin(connection)
            yield Transaction(self, connection)
            await self._commit(connection)
        except asyncio.CancelledError:
            self._connections.soon(self._give_up(connection))
            raise
        except BaseException:
            await self._give_up(connection)
            raise
        await self._connections.give_back(connection)

    async def close(self) -> None:
        """Wait for the calls under way and close our connections; later calls raise :class:`StorageClosed`."""
        if self._closed:
            return
        self.check_place()
        self._closed = True
        await self._connections.close()

    def check_place(self) -> None:
        """Raise `ConfigError` in another event loop or process than the one in which the database was opened."""
        if os.getpid() != self._pid:
            raise ConfigError("this storage was opened before a fork; open a new one in the child process")
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError("this storage was opened in another event loop; open one in each loop")

    def teach(self, queries: Mapping[str, str]) -> None:
        """Add named statements to those that it was opened with."""
        self._queries = {**self._queries, **queries}

    def statement(self, name: str) -> str:
        """Return the text of a named statement."""
        return self._queries[name]

    async def send(
        self, connection: PooledConnection, name: str, text: str, args: Sequence[object]
    ) -> list[asyncpg.Record]:
        """Announce a statement and run it on the connection; errors are still the driver's."""
        self._announce(name)
        # The whole result, not `fetchrow`: a row limit would let the server stop a writing function half-way.
        return await connection.fetch(text, *args, timeout=self._answer_limit_s)

    async def command(self, connection: PooledConnection, name: str, text: str, args: Sequence[object] = ()) -> str:
        """Announce a statement, or several without parameters, and return the server's tag for the last."""
        self._announce(name)
        return await connection.execute(text, *args, timeout=self._answer_limit_s)

    def failure(self, error: BaseException, phase: Phase, name: str, *, reads: bool = False) -> Exception:
        """Return our error for one of the driver's."""
        action = "connecting to" if phase is Phase.CONNECT else f"running {name!r} on"
        closed = pool_failure(error)
        return closed or translate(error, phase, action=action, address=self.options.address, reads=reads)

    async def _meet_server(self) -> None:
        connection = await self._connect(start=True)
        try:
            # The server told both when the connection was made; asking again would cost a round trip.
            major = connection.get_server_version().major
            encoding = str(connection.get_settings().server_encoding)
        finally:
            await self._connections.release(connection)
        check_server(major=major, encoding=encoding, address=self.options.address)

    async def _connect(self, *, start: bool = False) -> PooledConnection:
        """Lend a connection, trying again while the server restarts or is full."""
        self._check_usable()
        kept = self._connections.take_kept()
        if kept is not None:
            return kept
        for tries in range(1, MAX_TRIES + 1):
            try:
                if start:
                    await self._connections.start()
                return await self._connections.acquire()
            except DRIVER_ERRORS as error:
                if remedy_for(error, Phase.CONNECT) is not Remedy.REPEAT or tries == MAX_TRIES:
                    raise self.failure(error, Phase.CONNECT, "connect") from error
            await _pause(tries)
        raise AssertionError("the last try returns or raises")

    async def _ask(self, name: str | None, text: str, args: Sequence[object]) -> list[asyncpg.Record]:
        """Run one statement on a connection of the pool, announced if it has a name; errors are the driver's."""
        connection = await self._connect()
        try:
            if name is not None:
                self._announce(name)
            rows = await connection.fetch(text, *args, timeout=self._answer_limit_s)
        except (asyncio.CancelledError, TimeoutError):
            # The server may take its time to stop the statement; the caller does not wait for that.
            self._connections.soon(self._connections.release(connection))
            raise
        except BaseException as error:
            if is_unsent(error):
                # Its end is on the way, and until then the pool would take it for a good one.
                _drop(connection)
            await self._connections.release(connection)
            raise
        await self._connections.give_back(connection)
        return rows

    async def _fetch(self, name: str, args: Sequence[object], *, reads: bool, repeatable: bool) -> list[asyncpg.Record]:
        text = self.statement(name)
        for tries in range(1, MAX_TRIES + 1):
            try:
                return await self._ask(name, text, args)
            except DRIVER_ERRORS as error:
                if not _may_repeat(remedy_for(error, Phase.STATEMENT), tries, repeatable=repeatable):
                    raise self.failure(error, Phase.STATEMENT, name, reads=reads) from error
            await _pause(tries)
        raise AssertionError("the last try returns or raises")

    async def _begin(self, connection: PooledConnection) -> None:
        try:
            await self.command(connection, "begin", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        except DRIVER_ERRORS as error:
            raise self.failure(error, Phase.TRANSACTION, "begin") from error

    async def _commit(self, connection: PooledConnection) -> None:
        try:
            await self.command(connection, "commit", "COMMIT")
        except DRIVER_ERRORS as error:
            raise self.failure(error, Phase.COMMIT, "commit") from error

    async def _give_up(self, connection: PooledConnection) -> None:
        """Roll back what is still open; the error under way matters more than one of this."""
        try:
            if not connection.is_closed() and connection.is_in_transaction():
                await self.command(connection, "rollback", "ROLLBACK")
        except DRIVER_ERRORS:
            # Half rolled back is no state to lend again; closing makes the server roll back.
            _drop(connection)
        finally:
            await self._connections.release(connection)

    def _announce(self, name: str) -> None:
        if self._on_statement is not None:
            self._on_statement(name)

    def _check_usable(self) -> None:
        self.check_place()
        if self._closed:
            raise StorageClosed


class Transaction:
    """Named statements within one transaction. Nothing of it counts until the block ends."""

    def __init__(self, database: Database, connection: PooledConnection) -> None:
        self._database = database
        self._connection = connection

    async def one(self, shape: type[T], name: str, *args: object) -> T | None:
        """Return the first row of the statement, or nothing."""
        rows = await self._fetch(name, args)
        return _shaped(shape, name, rows[0]) if rows else None

    async def all(self, shape: type[T], name: str, *args: object) -> list[T]:
        """Return the rows of the statement."""
        return [_shaped(shape, name, row) for row in await self._fetch(name, args)]

    async def run(self, name: str, *args: object) -> int:
        """Run a statement for its effect and return how many rows it changed."""
        try:
            tag = await self._database.command(self._connection, name, self._database.statement(name), args)
        except DRIVER_ERRORS as error:
            raise self._database.failure(error, Phase.TRANSACTION, name) from error
        # The server's tag reads "UPDATE 3" or "INSERT 0 3", and has no number where rows do not matter.
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def execute_script(self, text: str) -> None:
        """Run the statements of a migration, which take no parameters and must not end the transaction."""
        try:
            await self._database.command(self._connection, "script", text)
        except DRIVER_ERRORS as error:
            raise self._database.failure(error, Phase.TRANSACTION, "script") from error

    async def _fetch(self, name: str, args: Sequence[object]) -> list[asyncpg.Record]:
        try:
            return await self._database.send(self._connection, name, self._database.statement(name), args)
        except DRIVER_ERRORS as error:
            raise self._database.failure(error, Phase.TRANSACTION, name) from error


def _shaped(shape: type[T], name: str, row: asyncpg.Record) -> T:
    try:
        return msgspec.convert(tuple(row), shape, strict=False)
    except msgspec.ValidationError as error:
        raise CorruptData(f"{name!r} returned a row that is not a {shape.__name__}: {error}") from error


def _drop(connection: PooledConnection) -> None:
    """Close a connection without a word to the server; one that is already gone refuses even that."""
    with contextlib.suppress(*DRIVER_ERRORS):
        connection.terminate()


def _may_repeat(remedy: Remedy, tries: int, *, repeatable: bool) -> bool:
    if remedy is Remedy.REPEAT_ONCE:
        return tries == 1
    helps = remedy is Remedy.REPEAT or (remedy is Remedy.REPEAT_IF_HARMLESS and repeatable)
    return helps and tries < MAX_TRIES


async def _pause(tries: int) -> None:
    """Wait before the next try, longer after each failure."""
    await asyncio.sleep(jitter(backoff(tries - 1, longest_s=_LONGEST_PAUSE_S)))
