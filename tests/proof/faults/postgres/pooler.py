"""A pooler in transaction mode, like pgbouncer: many clients alternate on few connections to the server.

A client has a connection for one transaction, and the next transaction may run on another one. Like
pgbouncer it answers the client's startup message, refuses unknown settings, and resets nothing that a
session left behind: prepared statements, settings and listeners of one client are visible to the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from lash.testing.postgres_server import PostgresServer

_SSL_REQUEST: Final = 80877103
_CANCEL_REQUEST: Final = 80877102
_KNOWN: Final = frozenset({"user", "database", "application_name", "client_encoding", "options"})
_READY_IDLE: Final = b"Z\x00\x00\x00\x05I"
_STARTUP: Final = {"user": "postgres", "database": "postgres", "client_encoding": "UTF8"}


class _Line:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = greeting


class Pooler:
    """Serves clients; ``switches`` counts how often a client got another connection than before."""

    def __init__(self, socket_path: str, size: int) -> None:
        self._socket_path = socket_path
        self._size = size
        self._free: asyncio.Queue[_Line] = asyncio.Queue()
        self._lines: list[_Line] = []
        self._serving: set[asyncio.Task[None]] = set()
        self.switches = 0
        self.clients = 0

    async def start(self) -> None:
        """Open all connections to the server."""
        for _ in range(self._size):
            reader, writer = await asyncio.open_unix_connection(self._socket_path)
            writer.write(_startup())
            greeting = b""
            while not greeting.endswith(_READY_IDLE):
                greeting += await _message(reader)
            line = _Line(reader, writer, greeting)
            self._lines.append(line)
            self._free.put_nowait(line)

    async def close(self) -> None:
        """End all clients and connections."""
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for line in self._lines:
            line.writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it leaves."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if await self._greet(reader, writer):
                self.clients += 1
                await self._transactions(reader, writer)
        writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        while True:
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code == _CANCEL_REQUEST:
                return False
            if code != _SSL_REQUEST:
                break
            writer.write(b"N")
        names = set(body[4:].rstrip(b"\0").decode().split("\0")[::2])
        if not names <= _KNOWN:
            text = f"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: {min(names - _KNOWN)}\0\0".encode()
            writer.write(b"E" + struct.pack("!i", len(text) + 4) + text)
            return False
        writer.write(self._lines[0].greeting)
        return True

    async def _transactions(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last: _Line | None = None
        while True:
            first = await _message(reader)
            if first[:1] == b"X":
                return
            line = await self._free.get()
            self.switches += last is not None and line is not last
            last = line
            asking = asyncio.create_task(self._forward(first, reader, line))
            try:
                while True:
                    answer = await _message(line.reader)
                    writer.write(answer)
                    if answer == _READY_IDLE:
                        break
            finally:
                asking.cancel()
                await asyncio.wait({asking})
            self._free.put_nowait(line)

    async def _forward(self, first: bytes, reader: asyncio.StreamReader, line: _Line) -> None:
        line.writer.write(first)
        while True:
            # Messages are read whole: a cancellation between two loses nothing of the next.
            header = await reader.readexactly(5)
            line.writer.write(header + await reader.readexactly(struct.unpack("!i", header[1:])[0] - 4))


async def _message(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(5)
    return header + await reader.readexactly(struct.unpack("!i", header[1:])[0] - 4)


def _startup() -> bytes:
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in _STARTUP.items())
    body = struct.pack("!i", 196608) + pairs + b"\0"
    return struct.pack("!i", len(body) + 4) + body


@asynccontextmanager
async def pooler_before(server: PostgresServer, *, size: int) -> AsyncIterator[tuple[Pooler, str]]:
    """Start a pooler in front of a private server; gives it and the URL that leads through it."""
    directory, port = server._private_directory(), server._port
    pooler = Pooler(f"{directory}/.s.PGSQL.{port}", size)
    await pooler.start()
    listening = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    host_port = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield pooler, urlsplit(server.url)._replace(netloc=f"postgres@{host_port}").geturl()
    finally:
        listening.close()
        await pooler.close()
        await listening.wait_closed()
