"""A proxy between client and server that counts round trips and can cut the line at a chosen moment."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_SYNC = b"S\x00\x00\x00\x04"
_FLUSH = b"H\x00\x00\x00\x04"
_SIMPLE_QUERY = b"Q"


class Cut(enum.Enum):
    """When to cut the line."""

    BEFORE_SENDING = "before_sending"
    """The server never sees the statement."""
    BEFORE_ANSWERING = "before_answering"
    """The server has run the statement; the client never learns of it."""
    SWALLOW = "swallow"
    """Not cut at all: the line stays open and nothing passes any more."""


class Proxy:
    """Forwards bytes. ``round_trips`` counts the client's requests that await a reply, since the last reset."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.port = 0
        self.round_trips = 0
        self._cut: tuple[bytes, Cut] | None = None
        self.is_closed = False
        """Set it to refuse every further connection; the next cut sets it if it was asked to."""
        self._closes = False

    def cut_once(self, marker: bytes, when: Cut, *, for_good: bool = False) -> None:
        """Cut the line the next time the client sends something with the marker in it; ``for_good`` for all lines."""
        self._cut = (marker, when)
        self._closes = for_good

    def lead_to(self, port: int | None) -> None:
        """Connect the clients that come from now on to another server on the same host."""
        assert port is not None
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        answers = asyncio.create_task(_copy(server_reader, writer))
        try:
            while data := await reader.read(65536):
                self.round_trips += data.count(_SYNC) + data.count(_FLUSH) + data.startswith(_SIMPLE_QUERY)
                cut = self._take_cut(data)
                if cut is Cut.BEFORE_SENDING:
                    break
                if cut is Cut.SWALLOW:
                    await reader.read()
                    break
                if cut is Cut.BEFORE_ANSWERING:
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    server_writer.write(data)
                    # The server's answer to a Sync ends with ReadyForQuery ("Z", length 5, state).
                    await server_reader.readuntil(b"Z\x00\x00\x00\x05")
                    break
                server_writer.write(data)
        except ConnectionError:
            pass
        finally:
            answers.cancel()
            server_writer.close()
            writer.transport.abort()

    def _take_cut(self, data: bytes) -> Cut | None:
        if self._cut is None or self._cut[0] not in data:
            return None
        when = self._cut[1]
        self._cut = None
        self.is_closed = self._closes
        return when


@asynccontextmanager
async def proxy_before(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Start a proxy in front of the server of the URL; gives the proxy and the URL that leads through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    credentials = parts.netloc.rpartition("@")[0]
    try:
        yield proxy, parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}").geturl()
    finally:
        server.close()
        await server.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        if not writer.is_closing() and reader.at_eof():
            writer.close()
