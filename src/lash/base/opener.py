"""The process and the event loop that opened a storage, in which alone it can be used."""

from __future__ import annotations

import asyncio
import os

from lash.errors import ConfigError


class Opener:
    """The process and the event loop in which this object was made."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._loop = loop

    def check_process(self) -> None:
        """Raise ConfigError in a child that was forked after the storage was opened."""
        if os.getpid() != self._process:
            raise ConfigError(
                "this storage was opened before the process forked; fork before you open it, or start the child with "
                "the 'spawn' or 'forkserver' method"
            )

    def check_loop(self) -> None:
        """Raise ConfigError unless called in the event loop and the process that opened the storage."""
        if os.getpid() != self._process:
            self.check_process()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise ConfigError(
                "this storage was opened in another event loop, or is used from a thread without one; open one storage "
                "in each event loop (each asyncio.run makes a new one) and use it there, or use lash.shared(url)"
            )
