"""The console beside the demo: what happens is seen in a browser too."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Final

from lash.demo.screen import Screen
from lash.stores.storage import Storage
from lash.web import Access, console
from lash.web.login import TokenAccess
from lash.web.server import Server, listening

_HOST: Final = "127.0.0.1"


@contextlib.asynccontextmanager
async def shown(screen: Screen, storage: Storage, session_id: str) -> AsyncIterator[None]:
    """Wait until a browser has opened the console, and serve it until Ctrl-C after the demo."""
    opened = asyncio.Event()
    with listening(_HOST, 0) as listener:
        port = listener.getsockname()[1]
        access = TokenAccess(Access.READ, token=None, port=port, renewed=lambda _: opened.set())
        pages = console(storage, access=access)
        server = Server(access.wrap(pages), pages)
        running = asyncio.get_running_loop().create_task(server.run(listener))
        screen.title("The console")
        screen.line(f"open http://{_HOST}:{port}/?token={access.token}")
        try:
            await opened.wait()
            screen.line(f"the session of the demo is {session_id}")
            yield
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, server.stop)
            screen.title("Look around in the browser; Ctrl-C ends the demo")
            await running
        finally:
            server.stop()
            await running
