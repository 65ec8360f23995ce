"""One listening connection for all workers of a machine: a worker relays notifications to the others.

PostgreSQL up to version 18 wakes every listening connection of a database at every notification, whatever its channel.
So of the programs that one user runs on one machine, one worker listens for all. It serves an abstract Unix socket,
which no other process can have and which is free again when the worker ends. The others send it the channels to listen
to. Each of them checks with a notification of its own that it reaches the same database, and pings the relay: if it
does not answer, because it was stopped or its event loop is blocked, the next program becomes a second relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec

from lash.base.shapes import read_json
from lash.postgres.engine.errors import DRIVER_ERRORS
from lash.postgres.engine.options import PostgresOptions

if TYPE_CHECKING:
    from lash.postgres.engine.pool import PlainConnection

Receiver: TypeAlias = "Callable[[object, int, str, object], None]"
_MOST_RELAYS: Final = 4
"""How many relays one machine may have; if none of them answers, a program listens for itself."""
_HELLO_S: Final = 1.0
"""How long a relay may take to answer a program that connects."""
_PING_S: Final = 0.5
"""How often a program checks that its relay answers."""
_SILENT_S: Final = 1.5
"""A relay that sends nothing for this long, in spite of pings, is given up."""
_LISTEN_S: Final = 10.0
"""How long a relay may take to listen to a channel."""
_MOST_UNSENT: Final = 1 << 20
"""How many bytes may wait for a program that does not read, before the relay drops it; then it connects again."""
_LONGEST_LINE: Final = 1 << 16
"""Notifications have less than 8,000 bytes; JSON may double that."""
_BACKLOG: Final = 128
"""How many programs may connect at the same moment."""
_CREDENTIALS: Final = struct.Struct("3i")
_RELAY_ERRORS: Final = (OSError, EOFError, ValueError, TimeoutError, msgspec.MsgspecError)


class Listening(Protocol):
    """A connection that receives notifications, or a stand-in for one."""

    def add_termination_listener(self, callback: Callable[[object], None], /) -> None:
        """Call this once when the connection is lost."""

    async def add_listener(self, channel: str, callback: Receiver, /) -> None:
        """Listen to a channel from now on."""

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 (as the driver's connections have it)
        """Stop to listen."""


class RelayFailed(Exception):
    """No relay of this machine could be used; the program listens for itself."""


async def listen_shared(
    options: PostgresOptions,
    connect: Callable[[], Awaitable[PlainConnection]],
    probe: Callable[[str], Awaitable[None]],
    *,
    may_serve: bool,
) -> Listening:
    """Return a relay's notifications, a connection that is now a relay itself, or a connection of one's own.

    ``probe`` sends a notification to a channel. Errors are those of ``connect``.
    """
    if sys.platform != "linux":
        return await connect()
    for number in range(_MOST_RELAYS):
        name = _name_of(options, number)
        # Once more if another program became this relay in between.
        for _ in range(2):
            try:
                return await _follow(name, probe)
            except ConnectionRefusedError:
                if may_serve and (served := _bind(name)) is not None:
                    return await _Relay.start(served, connect)
            except (*_RELAY_ERRORS, RelayFailed):
                break
    return await connect()


def _name_of(options: PostgresOptions, number: int) -> bytes:
    """Return the address of a relay; programs that spell the URL in different ways have different ones."""
    parts = urlsplit(options.listen_dsn)
    user, host = (parts.username or ""), parts.netloc.rpartition("@")[2]
    query = sorted(pair for pair in parse_qsl(parts.query) if pair[0] not in {"password", "sslpassword"})
    environment = sorted(pair for pair in os.environ.items() if pair[0].startswith("PG") and pair[0] != "PGPASSWORD")
    place = repr((os.geteuid(), user, host, parts.path, query, environment, options.schema))
    return b"\0lash-" + hashlib.sha256(place.encode()).hexdigest()[:40].encode() + b"-%d" % number


def _bind(name: bytes) -> socket.socket | None:
    """Return a socket of this name; None if another process has it."""
    served = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        served.bind(name)
        served.listen(_BACKLOG)
        served.setblocking(False)
    except OSError:
        served.close()
        return None
    return served


def _is_own(connected: socket.socket) -> bool:
    """Return whether the other end belongs to this user: abstract sockets are open to all."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _check_own(connected: socket.socket) -> None:
    if not _is_own(connected):
        raise RelayFailed("the relay belongs to another user")


def _line(*words: str) -> bytes:
    return msgspec.json.encode(words) + b"\n"


async def _words(reader: asyncio.StreamReader) -> list[str]:
    """Return the next line; raise EOFError at the end."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return read_json(line, list[str])


class _Relay:
    """A listening connection, and the programs that it serves.

    It answers them before it is connected: they need not wait to know that it is alive.
    """

    def __init__(self, served: socket.socket) -> None:
        self._served = served
        self._connection: PlainConnection | None = None
        self._connected = asyncio.Event()
        self._statements = asyncio.Lock()
        self._serving: dict[asyncio.Task[None], socket.socket] = {}
        self._closed = False

    @classmethod
    async def start(cls, served: socket.socket, connect: Callable[[], Awaitable[PlainConnection]]) -> _Relay:
        relay = cls(served)
        relay._watch()
        try:
            relay._connection = await connect()
        except BaseException:
            await relay.close(timeout=_HELLO_S)
            raise
        relay._connected.set()
        return relay

    def add_termination_listener(self, callback: Callable[[object], None], /) -> None:
        assert self._connection is not None
        self._connection.add_termination_listener(callback)

    async def add_listener(self, channel: str, callback: Receiver, /) -> None:
        await self._connected.wait()
        assert self._connection is not None
        async with self._statements:
            await self._connection.add_listener(channel, callback)

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 (as the driver's connections have it)
        self._closed = True
        asyncio.get_running_loop().remove_reader(self._served)
        self._served.close()
        connection, self._connection = self._connection, None
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(set(self._serving), timeout=timeout)
        if connection is not None:
            await connection.close(timeout=timeout)

    def _watch(self) -> None:
        """Accept programs from now on.

        A server of asyncio would leave a connection open that it accepted in the iteration in which it was closed.
        """
        if not self._closed:
            asyncio.get_running_loop().add_reader(self._served, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            connected, _ = self._served.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            # The process has no file descriptor left: accept again when it may have one.
            loop.remove_reader(self._served)
            loop.call_later(_HELLO_S, self._watch)
            return
        connected.setblocking(False)
        task = loop.create_task(self._serve(connected), name="lash-postgres-relay")
        self._serving[task] = connected
        task.add_done_callback(self._served_one)

    def _served_one(self, task: asyncio.Task[None]) -> None:
        # Here, since a task that is cancelled before it began runs nothing.
        self._serving.pop(task).close()

    async def _serve(self, connected: socket.socket) -> None:
        """Serve one program until it closes its connection."""
        if not _is_own(connected):
            return
        reader, writer = await asyncio.open_unix_connection(sock=connected, limit=_LONGEST_LINE)
        channels: list[str] = []

        def forward(_connection: object, _pid: int, channel: str, message: object) -> None:
            if writer.transport.get_write_buffer_size() > _MOST_UNSENT:
                writer.transport.abort()
            elif not writer.is_closing():
                writer.write(_line("note", channel, str(message)))

        try:
            writer.write(_line("hello"))
            while True:
                words = await _words(reader)
                if words[0] == "listen":
                    channels.append(words[1])
                    await self.add_listener(words[1], forward)
                    writer.write(_line("listening", words[1]))
                else:
                    writer.write(_line("pong"))
        except (*_RELAY_ERRORS, *DRIVER_ERRORS, IndexError):
            pass
        finally:
            writer.transport.abort()
            await self._leave(channels, forward)

    async def _leave(self, channels: list[str], receiver: Receiver) -> None:
        """Listen no more to the channels of a program that left."""
        if self._connection is None:
            return
        with contextlib.suppress(*DRIVER_ERRORS):
            for channel in channels:
                async with self._statements:
                    await self._connection.remove_listener(channel, receiver)


async def _follow(name: bytes, probe: Callable[[str], Awaitable[None]]) -> _Followed:
    """Connect to a relay, and check that it listens to the same database."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        connected.connect(name)
        _check_own(connected)
        reader, writer = await asyncio.open_unix_connection(sock=connected, limit=_LONGEST_LINE)
    except BaseException:
        connected.close()
        raise
    try:
        async with asyncio.timeout(_HELLO_S):
            await _words(reader)
    except BaseException:
        writer.transport.abort()
        raise
    followed = _Followed(reader, writer)
    try:
        await followed.check(probe)
    except BaseException:
        await followed.close(timeout=0)
        raise
    return followed


class _Followed:
    """Notifications that another program relays."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._receivers: dict[str, Receiver] = {}
        self._answers: dict[str, asyncio.Future[None]] = {}
        self._when_lost: list[Callable[[object], None]] = []
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="lash-postgres-relayed")

    def add_termination_listener(self, callback: Callable[[object], None], /) -> None:
        self._when_lost.append(callback)
        if self._reading.done():
            callback(self)

    async def add_listener(self, channel: str, callback: Receiver, /) -> None:
        """Listen to a channel; raises OSError if the relay is lost."""
        if self._reading.done():
            raise ConnectionResetError("the relay was lost")
        self._receivers[channel] = callback
        answer = self._answers[channel] = asyncio.get_running_loop().create_future()
        self._writer.write(_line("listen", channel))
        async with asyncio.timeout(_LISTEN_S):
            await asyncio.wait({answer, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionResetError("the relay was lost")

    async def check(self, probe: Callable[[str], Awaitable[None]]) -> None:
        """Send a notification to a channel of its own; raise TimeoutError if it does not arrive here."""
        channel, arrived = f"lash_probe_{secrets.token_hex(8)}", asyncio.Event()
        await self.add_listener(channel, lambda *_: arrived.set())
        await probe(channel)
        async with asyncio.timeout(_LISTEN_S):
            await arrived.wait()

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 (as the driver's connections have it)
        self._when_lost.clear()
        self._reading.cancel()
        await asyncio.wait({self._reading}, timeout=timeout or None)

    async def _read(self) -> None:
        """Receive until the relay is lost."""
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        try:
            while loop.time() - heard_at < _SILENT_S:
                try:
                    async with asyncio.timeout(_PING_S):
                        words = await _words(self._reader)
                except TimeoutError:
                    self._writer.write(_line("ping"))
                    continue
                heard_at = loop.time()
                self._take(words)
        except (*_RELAY_ERRORS, IndexError):
            pass
        finally:
            self._writer.transport.abort()
            for callback in self._when_lost:
                callback(self)

    def _take(self, words: list[str]) -> None:
        if words[0] == "note" and words[1] in self._receivers:
            self._receivers[words[1]](self, 0, words[1], words[2])
        elif words[0] == "listening" and (answer := self._answers.pop(words[1], None)) is not None:
            answer.set_result(None)
