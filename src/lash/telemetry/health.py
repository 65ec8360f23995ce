"""Serves ``/live``, ``/ready`` and ``/metrics`` of one program, for probes and for Prometheus.

It runs in a thread of its own, so that it answers while the event loop is blocked, which is what ``/live`` reports.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from lash.errors import ConfigError, LashError
from lash.telemetry.prometheus import CONTENT_TYPE

BLOCKED_S: Final = 10.0
"""An event loop that did not run for this long is reported as hung."""
_BEAT_S: Final = 0.5
_READY_S: Final = 2.0
"""How long the storage may take to answer; probes give up about then."""
_REQUEST_S: Final = 5.0
_MOST_PORT: Final = 65_535
_OK: Final = 200
_STOP_S: Final = 0.05
"""How soon it notices that it is to stop."""
_TEXT: Final = "text/plain; charset=utf-8"


class Checks(NamedTuple):
    """What is served: the metrics, and a check that raises unless the program can work."""

    metrics: Callable[[], str]
    ready: Callable[[], Awaitable[None]]


class HealthAnswer(NamedTuple):
    status: int
    text: str
    content_type: str = _TEXT

    @property
    def is_well(self) -> bool:
        return self.status == _OK


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port of ``HOST:PORT``; raise ConfigError if it is not of that form."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > _MOST_PORT:
        raise ConfigError(f"expected HOST:PORT, such as 127.0.0.1:9090, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


@contextlib.asynccontextmanager
async def serve_health(host: str, port: int, checks: Checks) -> AsyncIterator[int]:
    """Serve until the end of the block, and yield the port; port 0 takes a free one."""
    health = _Health(checks, asyncio.get_running_loop())
    server = _listen(host, port, health)
    thread = threading.Thread(target=server.serve_forever, args=(_STOP_S,), name="lash-health", daemon=True)
    beating = asyncio.create_task(health.beat(), name="lash-health-beat")
    thread.start()
    try:
        yield server.server_port
    finally:
        beating.cancel()
        await asyncio.to_thread(_close, server, thread)


class _Health:
    """Answers requests from any thread."""

    def __init__(self, checks: Checks, loop: asyncio.AbstractEventLoop) -> None:
        self._checks = checks
        self._loop = loop
        self._beat_at = time.monotonic()

    async def beat(self) -> None:
        """Note that the event loop runs, until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(_BEAT_S)

    def answer(self, path: str) -> HealthAnswer:
        match path.partition("?")[0]:
            case "/live":
                return self._live()
            case "/ready":
                live = self._live()
                return self._ready() if live.is_well else live
            case "/metrics":
                return HealthAnswer(200, self._checks.metrics(), CONTENT_TYPE)
        return HealthAnswer(404, "unknown path; there are /live, /ready and /metrics\n")

    def _live(self) -> HealthAnswer:
        silent_s = time.monotonic() - self._beat_at
        if silent_s > BLOCKED_S:
            return HealthAnswer(503, f"the event loop has been blocked for {silent_s:.0f} s\n")
        return HealthAnswer(200, "live\n")

    def _ready(self) -> HealthAnswer:
        asked = asyncio.run_coroutine_threadsafe(readiness(self._checks.ready), self._loop)
        try:
            # The loop may be blocked, and then does not notice its own limit.
            return asked.result(_READY_S + _BEAT_S)
        except (TimeoutError, concurrent.futures.CancelledError):
            asked.cancel()
            return _silent()


async def readiness(check: Callable[[], Awaitable[None]]) -> HealthAnswer:
    """Return 200 if the check passes in time, or 503 with the reason."""
    try:
        async with asyncio.timeout(_READY_S):
            await check()
    except LashError as error:
        return HealthAnswer(503, f"{type(error).__qualname__}: {error}\n")
    except TimeoutError:
        return _silent()
    return HealthAnswer(200, "ready\n")


def _silent() -> HealthAnswer:
    return HealthAnswer(503, f"the storage did not answer within {_READY_S:g} s\n")


def _listen(host: str, port: int, health: _Health) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S
        server_version = "lash"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(with_body=True)

        def do_HEAD(self) -> None:
            self._send(with_body=False)

        def log_message(self, *_: object) -> None:
            """Log no requests: probes come every few seconds."""

        def _send(self, *, with_body: bool) -> None:
            found = health.answer(self.path)
            body = found.text.encode()
            self.send_response(found.status)
            self.send_header("Content-Type", found.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, request: object, client_address: object) -> None:
            """Log nothing: a client left."""

    try:
        return Server((host, port), Handler)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}; choose another port") from None


def _close(server: ThreadingHTTPServer, thread: threading.Thread) -> None:
    server.shutdown()
    thread.join()
    server.server_close()
