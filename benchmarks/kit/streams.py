"""A console in a process of its own, and a program that holds its streams open."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote, urlsplit

_Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_READY: Final = "ready"
_START_S: Final = 60
_STOP_S: Final = 30


class ConsoleProcess:
    """``lash web`` on a storage; `open` holds streams of its pages open."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.request("GET", f"{parts.path}?{parts.query}")
        self._cookie = (connection.getresponse().getheader("set-cookie") or "").partition(";")[0]
        connection.close()

    @contextlib.asynccontextmanager
    async def open(self, pages: Sequence[str]) -> AsyncIterator[None]:
        """Hold a stream of each of the pages open, in another process, as browsers do; the pages must exist."""
        command = [sys.executable, "-m", "benchmarks.kit.streams", self._host, str(self._port), self._cookie, *pages]
        browsers = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert browsers.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                assert (await browsers.stdout.readline()).decode().strip() == _READY
            yield
        finally:
            browsers.terminate()
            await browsers.wait()


@contextlib.contextmanager
def console_process(url: str) -> Iterator[ConsoleProcess]:
    """Serve the console of a storage."""
    command = [sys.executable, "-m", "lash", "web", "--url", url, "--port", "0", "--allow", "act", "--json"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            yield ConsoleProcess(json.loads(server.stdout.readline())["url"])
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(_STOP_S)


async def _hold(host: str, port: int, cookie: str, pages: Sequence[str]) -> None:
    """Open a stream for each page, report when each has sent its first piece, and read until the program is ended."""
    opened = [await _opened(host, port, cookie, page) for page in pages]
    print(_READY, flush=True)
    await asyncio.gather(*(_drain(reader) for reader, _ in opened))


async def _opened(host: str, port: int, cookie: str, page: str) -> _Stream:
    """Open one stream. A writer that is forgotten would close it."""
    name, _, query = page.partition("?")
    target = f"/events?page={quote(name)}" + (f"&{query}" if query else "")
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    assert b" 200 " in await reader.readline()
    await reader.readuntil(b"event: piece")
    return reader, writer


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
