"""The console in a real browser, beside a real worker process: live, operable, accessible, and safe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, expect

import lash
from tests.proof.web.chromium import chromium
from tests.proof.web.program import approval, broken, declared, speaker
from tests.web.site import fill

PATIENCE_S = 60.0
PATIENCE_MS = PATIENCE_S * 1_000
SCREENSHOTS = Path(folder) if (folder := os.environ.get("LASH_SCREENSHOTS")) else None
"""Where the pictures of the documentation are written: ``LASH_SCREENSHOTS=docs/assets/console``."""
PAGES = ("", "sessions", "processes", "inbox", "queue", "queue?show=dead", "workers", "triggers", "tokens", "storage")


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


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"])
async def test_a_day_of_an_operator(page: Page, worker: Worker, backend_url: str) -> None:
    """See a turn live, approve, discard a dead letter, fork, and follow a reply across the death of its worker."""
    base = page.url
    async with declared(backend_url, worker=False) as app:
        # A session that another process commits appears without a reload.
        await expect(page.locator("#stream-state")).to_have_text("live")
        await app.session("chat", speaker).ask("hello", timeout_s=PATIENCE_S)
        await expect(page.locator("#recent")).to_contain_text("chat")
        await _approve(page, base, app)
        await _discard(page, base, app)
        # A fork ends at the message where it was asked for.
        await page.goto(f"{base}session?id=chat")
        await page.get_by_role("button", name="Fork here").first.click()
        await expect(page.locator("#facts")).to_contain_text("fork of chat")
        await expect(page.locator("#chat article")).to_have_count(1)
        # The page follows a reply across the death of its worker, and ends with the committed message.
        await app.session("long", speaker).send("speak")
        await page.goto(f"{base}session?id=long")
        await expect(page.locator("#words")).to_contain_text("word3")
        worker.kill()
        worker.start()
        await expect(page.locator("#chat article.assistant:not(.live)")).to_contain_text("all words")
        # Its steps are drawn, with the attempt that died.
        await expect(page.locator("#turns summary")).to_contain_text("1 crash")


async def _approve(page: Page, base: str, app: lash.App) -> None:
    """Answer an open wait: the process in the other process ends with the answer."""
    await page.goto(f"{base}inbox")
    handle = await app.start(approval)
    await expect(page.locator("article.card")).to_contain_text("refund order 17?")
    await page.get_by_label("approved").select_option("true")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.locator(".notice")).to_have_text("answered")
    assert await handle.result(timeout_s=PATIENCE_S) == {"approved": True}


async def _discard(page: Page, base: str, app: lash.App) -> None:
    """See why a message died, and queue it again: it dies again, and is then discarded."""
    with pytest.raises(lash.TurnFailed):
        await app.session("broken-1", broken).ask("17", timeout_s=PATIENCE_S)
    await page.goto(f"{base}queue?show=dead")
    await page.get_by_role("button", name="Queue again", exact=True).click()
    await expect(page.locator(".notice")).to_have_text("queued it again")
    await expect(page.locator("#found details")).to_contain_text("no such order: 17")
    await page.get_by_role("button", name="Discard").click()
    await expect(page.locator("#found")).to_contain_text("No dead letters")


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_it_is_accessible_in_both_colours_and_on_a_phone(page: Page, backend_url: str) -> None:
    """Axe finds nothing serious on any page, light and dark; no page is wider than a phone; keys work."""
    base = page.url
    async with await lash.open(backend_url) as storage:
        await fill(storage, 2, "hello <b>world</b>")
    for theme in ("light", "dark"):
        await page.locator("#theme").select_option(theme)
        for path in (*PAGES, "session?id=s0", "process?id=p0"):
            await page.goto(base + path)
            assert await page.evaluate("document.documentElement.dataset.theme") == theme
            if SCREENSHOTS and theme == "light":
                await page.screenshot(path=SCREENSHOTS / f"{_name(path)}.png")
            found = await Axe().run(page)
            serious = [each["id"] for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
            assert serious == [], (path, theme, found.generate_report())
    await page.set_viewport_size({"width": 375, "height": 700})
    for path in (*PAGES, "session?id=s0", "process?id=p0"):
        await page.goto(base + path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 375, path


def _name(path: str) -> str:
    return path.partition("?")[0] + ("-dead" if "dead" in path else "") or "overview"


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_keys(page: Page, backend_url: str) -> None:
    """``/`` searches, ``j`` and ``k`` move, Enter opens, ``g`` goes to a page, ``?`` shows the list."""
    base = page.url
    async with await lash.open(backend_url) as storage:
        await fill(storage, 2)
    await page.goto(f"{base}sessions")
    # The script of a page has run once its stream is there.
    await expect(page.locator("#stream-state")).to_have_text("live")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    name = await page.locator("a.row").first.inner_text()
    await expect(page.locator("a.row").first).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#facts code")).to_have_text(name)
    await expect(page.locator("#stream-state")).to_have_text("live")
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await expect(page.locator("h1")).to_have_text("Queue")
    await expect(page.locator("#stream-state")).to_have_text("live")
    await page.keyboard.press("/")
    await expect(page.locator("[data-key=search]")).to_be_focused()
    await page.keyboard.type("s1")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{base}queue?prefix=s1&state=")
    await page.locator("h1").click()
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_hostile_content_runs_nowhere(page: Page, backend_url: str) -> None:
    """Scripts, links and control characters in every field are text in a real browser, live updates included."""
    base = page.url
    hostile = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\u202e'
    async with await lash.open(backend_url) as storage:
        await page.goto(f"{base}sessions")
        await expect(page.locator("#stream-state")).to_have_text("live")
        await fill(storage, 1, hostile)
        await expect(page.locator("#found")).to_contain_text("<script>")
        for path in (*PAGES, "session?id=s0", "process?id=p0"):
            await page.goto(base + path)
            assert await page.evaluate("window.owned") is None
            assert await page.locator("main img, main script, main [onerror]").count() == 0
