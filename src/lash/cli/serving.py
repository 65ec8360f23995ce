"""Serves an ASGI application with uvicorn until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lash.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_STOP_S: Final = 2
"""How long open responses may take to end."""


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from None


class Server:
    """A server that runs until it is stopped. Signals are left to the program."""

    def __init__(self, app: ASGIApp, *, extra: str, lifespan: bool = False) -> None:
        """Prepare a server; ``lifespan`` lets the application start and stop with it."""
        try:
            import uvicorn
        except ModuleNotFoundError:
            raise ConfigError(
                f"serving HTTP needs uvicorn; install it with: pip install 'lash-runtime[{extra}]'"
            ) from None

        class WithoutSignals(uvicorn.Server):
            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                """Catch none: the server would raise them again after it has stopped."""
                yield

        self._server = WithoutSignals(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on" if lifespan else "off",
                timeout_graceful_shutdown=_STOP_S,
            )
        )

    async def run(self, listener: socket.socket) -> None:
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Let the server end."""
        self._server.should_exit = True
