"""Notifications to systemd: that a service is ready, alive, or stopping."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG_US: Final = "WATCHDOG_USEC"
_WATCHDOG_PID: Final = "WATCHDOG_PID"


def notify(state: str) -> None:
    """Send a state such as ``READY=1``; does nothing in a program that systemd did not start with ``Type=notify``."""
    address = os.environ.get(_SOCKET, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


@contextlib.asynccontextmanager
async def notifying() -> AsyncIterator[None]:
    """Report ready now, and alive from the event loop while the block runs.

    A blocked event loop reports nothing, so that the watchdog restarts the service.
    """
    notify("READY=1")
    every_s = _watchdog_s()
    beating = None if every_s is None else asyncio.create_task(_beat(every_s), name="lash-systemd-watchdog")
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()


def _watchdog_s() -> float | None:
    """Return how often to report, twice as often as systemd expects; None without a watchdog."""
    pid = os.environ.get(_WATCHDOG_PID)
    if pid is not None and pid != str(os.getpid()):
        return None
    try:
        return int(os.environ[_WATCHDOG_US]) / 2_000_000
    except (KeyError, ValueError):
        return None


async def _beat(every_s: float) -> None:
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(every_s)
