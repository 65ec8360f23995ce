"""Where lash runs: on asyncio; under trio it refuses with a clear error, and works through a thread."""

from __future__ import annotations

import asyncio

import pytest
import trio

import lash
import lash.sync

EXPECTED = "expected a running asyncio event loop, got none; .*asyncio.run.*trio.to_thread.run_sync"


def test_under_trio_a_storage_says_what_to_do(backend_url: str) -> None:
    """Opening a storage under trio raises ConfigError, which names asyncio and the remedy."""

    async def main() -> None:
        await lash.open(backend_url)

    with pytest.raises(lash.ConfigError, match=EXPECTED):
        trio.run(main)


def test_under_trio_an_app_says_what_to_do(backend_url: str) -> None:
    """Opening an app under trio raises the same error."""

    async def main() -> None:
        async with lash.App(backend_url):
            pass

    with pytest.raises(lash.ConfigError, match=EXPECTED):
        trio.run(main)


def test_under_trio_the_blocking_facade_works_in_a_thread(backend_url: str) -> None:
    """The remedy that the error names works."""

    def create() -> bool:
        with lash.sync.open(backend_url) as storage:
            storage.sessions.create("s")
            return storage.sessions.open("s") is not None

    async def main() -> bool:
        return await trio.to_thread.run_sync(create)

    assert trio.run(main)


async def test_a_storage_of_asyncio_refuses_a_thread_without_a_loop(backend_url: str) -> None:
    """A storage that was opened in an event loop names the cause in a thread without one."""
    async with await lash.open(backend_url) as storage:

        async def use() -> None:
            await storage.sessions.open("s")

        with pytest.raises(lash.ConfigError, match="opened in another event loop, or is used from a thread"):
            await asyncio.to_thread(lambda: trio.run(use))
