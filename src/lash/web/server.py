"""Serves the console alone, with uvicorn."""

from __future__ import annotations

from starlette.types import ASGIApp

from lash.cli import serving
from lash.web.console import Console

listening = serving.listening


class Server(serving.Server):
    """A server of the console that runs until it is stopped."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        super().__init__(app, extra="web")
        self._console = console

    def stop(self) -> None:
        """Let the server end. Streams end now: a server waits for open responses."""
        super().stop()
        self._console.end_streams()
