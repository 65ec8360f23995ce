"""One PostgreSQL database: named statements, one round trip each, retried where that is safe.

A statement takes a connection from the pool (`pool`), is sent once, and is retried after errors that `errors` knows to
be safe. Writes of many callers may be combined into one statement before they come here (`batcher`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from lash.base.backoff import backoff, jitter
from lash.base.opener import Opener
from lash.base.seal import PLAIN, Seals
from lash.base.shapes import convert
from lash.errors import CorruptData, StorageClosed, StorageFailure, StoreUnavailable
from lash.postgres.engine.driver import asyncpg
from lash.postgres.engine.errors import (
    DRIVER_ERRORS,
    FailurePhase,
    Remedy,
    is_read_only,
    is_unsent,
    pool_failure,
    remedy_for,
    translate,
)
from lash.postgres.engine.options import PostgresOptions
from lash.postgres.engine.pool import Connections, check_server
from lash.postgres.engine.statement_watch import LockHolder, StatementWatch

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PlainConnection, PooledConnection

T = TypeVar("T")
R = TypeVar("R")

StatementHook = Callable[[str], None]
"""Called with the name of each statement (and ``begin``, ``commit``, ``rollback``, ``script``) before it is sent."""

MAX_TRIES: Final = 5
"""How often a statement is sent, with growing pauses: about two seconds in all, enough for a failover to begin."""
_LONGEST_PAUSE_S: Final = 1.0
"""The longest pause between two tries."""
_ANSWER_GRACE_S: Final = 5.0
"""How long to wait beyond the server's own statement timeout, in case the network loses the answer."""


class Database:
    """Runs named statements on a pool of connections.

    It is used from the event loop and the process in which it was opened. A cancelled caller gets its cancellation at
    once; a statement that it had sent is then applied whole or not at all.
    """

    def __init__(
        self,
        connections: Connections,
        options: PostgresOptions,
        queries: Mapping[str, str],
        on_statement: StatementHook | None,
        seals: Seals = PLAIN,
    ) -> None:
        self.options = options
        self.seals = seals
        self._connections = connections
        self._queries = queries
        self._on_statement = on_statement
        self._begin_text = _begin_text(options)
        self._begin_snapshot_text = _begin_text(options, snapshot=True)
        self._watch = StatementWatch(self.lock_holders, options.statement_timeout_ms / 1000 + _ANSWER_GRACE_S)
        self._opener = Opener(asyncio.get_running_loop())
        self._closed = False

    @classmethod
    async def open(
        cls,
        options: PostgresOptions,
        *,
        queries: Mapping[str, str],
        pool: asyncpg.Pool[asyncpg.Record] | None = None,
        on_statement: StatementHook | None = None,
        seals: Seals = PLAIN,
    ) -> Self:
        """Connect once and check the server's version and encoding.

        A ``pool`` of the caller is used unchanged and never closed. Raises :class:`ConfigError` for a server that is
        too old, is not UTF8 or refuses the login, and :class:`StoreUnavailable` for one that does not answer.
        """
        database = cls(Connections(options, pool, queries["connection_use"]), options, queries, on_statement, seals)
        try:
            await database._check_server()
        except BaseException:
            database._closed = True
            await database._watch.close()
            database._connections.terminate()
            raise
        return database

    async def read_one(self, shape: type[T], name: str, *args: object) -> T | None:
        """Run one read-only statement and return its first row; None if there is none."""
        rows = await self._fetch(name, args, reads=True, repeatable=True)
        return _shaped(shape, name, rows[0], self.seals) if rows else None

    async def read_all(self, shape: type[T], name: str, *args: object) -> list[T]:
        """Run one read-only statement and return its rows."""
        rows = await self._fetch(name, args, reads=True, repeatable=True)
        return [_shaped(shape, name, row, self.seals) for row in rows]

    async def read_in_thread(self, shape: type[T], name: str, *args: object, decode: Callable[[list[T]], R]) -> R:
        """Run one read-only statement and return what the function makes of its rows, in a thread: for many rows."""
        rows = await self._fetch(name, args, reads=True, repeatable=True)
        return await _decoded_in_thread(shape, name, rows, self.seals, decode)

    async def write_one(self, shape: type[T], name: str, *args: object, repeatable: bool) -> T | None:
        """Run one statement in its own transaction and return its row; None if there is none.

        ``repeatable`` means that the statement may run twice, because its guard refuses the second run or because it is
        idempotent. It is then retried after a lost connection; any other raises :class:`StoreUnavailable` with
        ``outcome_unknown``.
        """
        rows = await self._fetch(name, args, reads=False, repeatable=repeatable)
        return _shaped(shape, name, rows[0], self.seals) if rows else None

    async def write_all(self, shape: type[T], name: str, *args: object, repeatable: bool) -> list[T]:
        """Run one statement in its own transaction and return its rows; see :meth:`write_one`."""
        rows = await self._fetch(name, args, reads=False, repeatable=repeatable)
        return [_shaped(shape, name, row, self.seals) for row in rows]

    async def write_under_locks(self, shape: type[T], name: str, *args: object, repeatable: bool) -> list[T]:
        """Run one statement twice in one transaction and one round trip, and return the rows of both runs.

        Its last argument is added: False in the first run, which only takes locks, and True in the second. The second
        run sees what others committed while the first one waited. See :meth:`write_one` for ``repeatable``.
        """
        rows = await self._fetch(name, args, reads=False, repeatable=repeatable, under_locks=True)
        return [_shaped(shape, name, row, self.seals) for row in rows]

    async def send_quietly(self, name: str, *args: object) -> None:
        """Run one statement that belongs to no operation and may be lost: no hook is called, nothing is retried."""
        text = self.statement(name)
        try:
            await self._ask(name, text, args, quietly=True)
        except DRIVER_ERRORS as error:
            raise self.failure(error, FailurePhase.STATEMENT, name) from error

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """Call this whenever a connection was closed: the next one may lead to another server."""
        self._connections.when_closed.append(callback)

    @property
    def can_listen(self) -> bool:
        """Whether `connect_to_listen` returns a connection that receives notifications."""
        return self._connections.can_listen

    async def connect_to_listen(self) -> PlainConnection:
        """Open a connection that belongs to the caller: not counted in the pool and not closed with it.

        Its errors are those of the driver.
        """
        return await self._connections.connect_to_listen()

    def transaction(self) -> contextlib.AbstractAsyncContextManager[Transaction]:
        """Open a read-committed transaction; it commits when the block ends and rolls back when the block raises.

        The block is not retried: a deadlock raises :class:`StoreUnavailable`, and the caller starts again. A connection
        lost during the COMMIT raises it with ``outcome_unknown``.
        """
        return self._transaction(self._begin_text)

    def snapshot(self) -> contextlib.AbstractAsyncContextManager[Transaction]:
        """Open a read-only transaction whose statements all see what was committed before the first of them."""
        return self._transaction(self._begin_snapshot_text)

    @contextlib.asynccontextmanager
    async def _transaction(self, begin: str) -> AsyncIterator[Transaction]:
        connection = await self._connect()
        try:
            await self._begin(connection, begin)
            yield Transaction(self, connection)
            await self._commit(connection)
        except asyncio.CancelledError:
            self._connections.return_later(self._roll_back_cancelled(connection))
            raise
        except BaseException:
            await self._roll_back(connection)
            raise
        await self._connections.give_back(connection)

    async def close(self) -> None:
        """Wait for calls in flight and close the connections; later calls raise :class:`StorageClosed`."""
        if self._closed:
            return
        self.check_loop()
        self._closed = True
        await self._watch.close()
        await self._connections.close()

    async def lock_holders(self) -> list[LockHolder]:
        """Return the transactions that hold locks on the tables of the schema and block others, or are idle."""
        name = "lock_holders"
        rows = await self._connections.ask_beside(self.statement(name), self.options.schema)
        return [_shaped(LockHolder, name, row, self.seals) for row in rows]

    def report_locks(self, what: str) -> None:
        """Log in the background what holds locks, for a caller that skips locked rows and does not wait."""
        self._watch.report(what, with_idle=True)

    def check_loop(self) -> None:
        """Raise `ConfigError` unless called in the event loop and the process that opened the database."""
        self._opener.check_loop()

    def add_queries(self, queries: Mapping[str, str]) -> None:
        """Add named statements."""
        self._queries = {**self._queries, **queries}

    def statement(self, name: str) -> str:
        """Return the text of a named statement."""
        return self._queries[name]

    async def send(
        self, connection: PooledConnection, name: str, text: str, args: Sequence[object]
    ) -> list[asyncpg.Record]:
        """Call the hook and run the statement on the connection; errors are not translated."""
        self._announce(name)
        self._watch.begin(connection, name)
        try:
            # The whole result, not `fetchrow`: a row limit would let the server stop a writing function half-way.
            return await connection.fetch(text, *args, timeout=self._watch.limit_s)
        finally:
            self._watch.end(connection)

    async def command(self, connection: PooledConnection, name: str, text: str, args: Sequence[object] = ()) -> str:
        """Call the hook, run a statement, or several without parameters, and return the server's tag for the last."""
        self._announce(name)
        self._watch.begin(connection, name)
        try:
            return await connection.execute(text, *args, timeout=self._watch.limit_s)
        finally:
            self._watch.end(connection)

    def failure(
        self, error: BaseException, phase: FailurePhase, name: str, *, reads: bool = False, address: str | None = None
    ) -> Exception:
        """Return lash's error for an error of the driver."""
        action = "connecting to" if phase is FailurePhase.CONNECT else f"running {name!r} on"
        if is_read_only(error):
            # A failover may leave the connections to the old primary open.
            self._connections.look_elsewhere()
        closed = pool_failure(error)
        return closed or translate(error, phase, action=action, address=address or self.options.address, reads=reads)

    async def _check_server(self) -> None:
        connection = await self._connect(start=True)
        try:
            # The server sent both when the connection was made; a query would cost a round trip.
            major = connection.get_server_version().major
            encoding = str(connection.get_settings().server_encoding)
        finally:
            await self._connections.release(connection)
        check_server(major=major, encoding=encoding, address=self.options.address)

    async def _connect(self, *, start: bool = False) -> PooledConnection:
        """Return a connection; retry while the server restarts or has no free slot."""
        self._check_usable()
        kept = self._connections.take_idle()
        if kept is not None:
            return kept
        for tries in range(1, MAX_TRIES + 1):
            try:
                if start:
                    await self._connections.start()
                return await self._connections.acquire()
            except DRIVER_ERRORS as error:
                if start and await self._set_after_connecting(error):
                    continue
                if remedy_for(error, FailurePhase.CONNECT) is not Remedy.RETRY or tries == MAX_TRIES:
                    raise self.failure(error, FailurePhase.CONNECT, "connect") from error
            await _pause(tries)
        raise AssertionError("the last try returns or raises")

    async def _set_after_connecting(self, refusal: BaseException) -> bool:
        """Send the session settings after connecting, if a pooler refused them at the start; return whether."""
        try:
            return await self._connections.set_after_connecting(refusal)
        except DRIVER_ERRORS as error:
            raise self.failure(error, FailurePhase.CONNECT, "connect") from error

    async def _ask(
        self, name: str, text: str, args: Sequence[object], *, quietly: bool, under_locks: bool = False
    ) -> list[asyncpg.Record]:
        """Run one statement on a connection of the pool, ``quietly`` without the hook; errors are not translated.

        ``under_locks``: twice, as `write_under_locks` says.
        """
        connections, watch = self._connections, self._watch
        self._check_usable()
        connection = connections.take_idle()
        if connection is None:
            connection = await self._connect()
        watch.begin(connection, name, asyncio.current_task())
        try:
            if not quietly:
                self._announce(name)
            if under_locks:
                # Without a BEGIN: the server ends the transaction after the last of the runs that it is sent at once.
                rows = await connection.fetchmany(text, [(*args, False), (*args, True)])
            else:
                rows = await connection.fetch(text, *args)
        except (asyncio.CancelledError, TimeoutError):
            # The server may take long to cancel the statement; the caller does not wait for it.
            connections.return_later(connections.release(connection))
            if watch.was_late(connection):
                raise TimeoutError from None
            raise
        except BaseException as error:
            if is_unsent(error):
                # The server is closing it; drop it so that the pool does not reuse it.
                _drop(connection)
            await connections.release(connection)
            raise
        finally:
            watch.end(connection)
        if not connections.keep(connection):
            await connections.give_back(connection)
        return rows

    async def _fetch(
        self, name: str, args: Sequence[object], *, reads: bool, repeatable: bool, under_locks: bool = False
    ) -> list[asyncpg.Record]:
        text, may_be_applied = self.statement(name), False
        for tries in range(1, MAX_TRIES + 1):
            try:
                return await self._ask(name, text, args, quietly=False, under_locks=under_locks)
            except DRIVER_ERRORS as error:
                remedy = remedy_for(error, FailurePhase.STATEMENT)
                may_be_applied |= remedy is Remedy.RETRY_IF_IDEMPOTENT and not reads
                if not _may_repeat(remedy, tries, repeatable=repeatable):
                    failure = self.failure(error, FailurePhase.STATEMENT, name, reads=reads)
                    if may_be_applied and isinstance(failure, StoreUnavailable | StorageFailure):
                        failure.outcome_unknown = True
                    raise failure from error
            except StoreUnavailable as away:
                # This try got no connection, but an earlier one may have been applied.
                away.outcome_unknown |= may_be_applied
                raise
            await _pause(tries)
        raise AssertionError("the last try returns or raises")

    async def _begin(self, connection: PooledConnection, text: str) -> None:
        try:
            await self.command(connection, "begin", text)
        except DRIVER_ERRORS as error:
            raise self.failure(error, FailurePhase.TRANSACTION, "begin") from error

    async def _commit(self, connection: PooledConnection) -> None:
        try:
            await self.command(connection, "commit", "COMMIT")
        except DRIVER_ERRORS as error:
            raise self.failure(error, FailurePhase.COMMIT, "commit") from error

    async def _roll_back(self, connection: PooledConnection) -> None:
        """Roll back an open transaction; an error here must not hide the one that caused it."""
        try:
            if not connection.is_closed() and connection.is_in_transaction():
                await self.command(connection, "rollback", "ROLLBACK")
        except DRIVER_ERRORS:
            # Its state is unknown; closing the connection makes the server roll back.
            _drop(connection)
        finally:
            await self._connections.release(connection)

    async def _roll_back_cancelled(self, connection: PooledConnection) -> None:
        """Roll back once the server has answered what was cancelled: it may just have begun the transaction."""
        with contextlib.suppress(*DRIVER_ERRORS):
            # The driver waits for that answer before it sends anything else.
            await connection.execute("SELECT", timeout=self.options.connect_timeout_s)
        await self._roll_back(connection)

    def _announce(self, name: str) -> None:
        if self._on_statement is not None:
            self._on_statement(name)

    def _check_usable(self) -> None:
        self.check_loop()
        if self._closed:
            raise StorageClosed


_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_BEGIN_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class Transaction:
    """Named statements within one transaction, committed when the block ends."""

    def __init__(self, database: Database, connection: PooledConnection) -> None:
        self._database = database
        self._connection = connection

    @property
    def seals(self) -> Seals:
        """What seals the values of this database."""
        return self._database.seals

    async def one(self, shape: type[T], name: str, *args: object) -> T | None:
        """Return the first row of the statement; None if there is none."""
        rows = await self._fetch(name, args)
        return _shaped(shape, name, rows[0], self._database.seals) if rows else None

    async def all(self, shape: type[T], name: str, *args: object) -> list[T]:
        """Return the rows of the statement."""
        return [_shaped(shape, name, row, self._database.seals) for row in await self._fetch(name, args)]

    async def all_in_thread(self, shape: type[T], name: str, *args: object, decode: Callable[[list[T]], R]) -> R:
        """Return what the function makes of the rows of the statement, in a thread: for many rows."""
        return await _decoded_in_thread(shape, name, await self._fetch(name, args), self._database.seals, decode)

    async def run(self, name: str, *args: object) -> int:
        """Run a statement for its effect and return how many rows it changed."""
        try:
            tag = await self._database.command(self._connection, name, self._database.statement(name), args)
        except DRIVER_ERRORS as error:
            raise self._database.failure(error, FailurePhase.TRANSACTION, name) from error
        # The server's tag reads "UPDATE 3" or "INSERT 0 3", and has no number where rows do not matter.
        count = tag.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def execute_script(self, text: str) -> None:
        """Run the statements of a migration, which take no parameters and must not end the transaction."""
        try:
            await self._database.command(self._connection, "script", text)
        except DRIVER_ERRORS as error:
            raise self._database.failure(error, FailurePhase.TRANSACTION, "script") from error

    async def _fetch(self, name: str, args: Sequence[object]) -> list[asyncpg.Record]:
        try:
            return await self._database.send(self._connection, name, self._database.statement(name), args)
        except DRIVER_ERRORS as error:
            raise self._database.failure(error, FailurePhase.TRANSACTION, name) from error


async def _decoded_in_thread(
    shape: type[T], name: str, rows: list[asyncpg.Record], seals: Seals, decode: Callable[[list[T]], R]
) -> R:
    # Each row is freed before the next: freeing very many at once would stop all threads for that time.
    rows.reverse()
    return await asyncio.to_thread(lambda: decode([_shaped(shape, name, rows.pop(), seals) for _ in range(len(rows))]))


def _begin_text(options: PostgresOptions, *, snapshot: bool = False) -> str:
    """Return what opens a transaction, in one message; ``snapshot`` is for one that only reads.

    The limit on idleness comes with each transaction, because a pooler or a pool of the caller may not pass on a
    setting of the session. No lock is held without it: a worker that freezes is rolled back.
    """
    text = _BEGIN_SNAPSHOT if snapshot else _BEGIN
    limit_ms = options.idle_transaction_timeout_ms
    return f"{text}; SET LOCAL idle_in_transaction_session_timeout = {limit_ms}" if limit_ms else text


def _shaped(shape: type[T], name: str, row: asyncpg.Record, seals: Seals) -> T:
    try:
        shaped = convert(tuple(row), shape, strict=False)
    except msgspec.ValidationError as error:
        raise CorruptData(f"query {name}: expected a row of {shape.__name__}, got another: {error}") from error
    return seals.open_row(shaped) if seals.is_active else shaped


def _drop(connection: PooledConnection) -> None:
    """Close a connection without notifying the server; one that is already closed raises, which does not matter."""
    with contextlib.suppress(*DRIVER_ERRORS):
        connection.terminate()


def _may_repeat(remedy: Remedy, tries: int, *, repeatable: bool) -> bool:
    if remedy is Remedy.RETRY_ONCE:
        return tries == 1
    helps = remedy is Remedy.RETRY or (remedy is Remedy.RETRY_IF_IDEMPOTENT and repeatable)
    return helps and tries < MAX_TRIES


async def _pause(tries: int) -> None:
    """Pause before the next try, longer after each failure."""
    await asyncio.sleep(jitter(backoff(tries - 1, longest_s=_LONGEST_PAUSE_S)))
