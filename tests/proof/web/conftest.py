"""A worker, ``lash web`` and a browser, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.proof.web.chromium import chromium

PATIENCE_S = 60.0
PATIENCE_MS = PATIENCE_S * 1_000


class Worker:
    """A worker in a process of its own, which the test kills."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.proof.web.program", self._url]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def worker(backend_url: str) -> Iterator[Worker]:
    """A worker that runs."""
    started = Worker(backend_url)
    started.start()
    yield started
    started.kill()


@pytest.fixture
def address(backend_url: str) -> Iterator[str]:
    """The address, with its token, of ``lash web`` in a process of its own."""
    command = [sys.executable, "-m", "lash", "web", "--url", backend_url, "--port", "0", "--allow", "act", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    announced = msgspec.json.decode(process.stdout.readline())
    yield announced["url"]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0
    process.stdout.close()


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A browser's window that reports every violation of the content security policy and every error of a script."""
    opened = await browser.new_context()
    opened.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(message.text)

    opened.on("weberror", lambda error: problems.append(str(error.error)))
    opened.on("console", note)
    yield opened
    assert problems == []


@pytest_asyncio.fixture
async def page(context: BrowserContext, address: str) -> Page:
    """A page that has logged in."""
    opened = await context.new_page()
    await opened.goto(address)
    assert "token" not in opened.url
    return opened
