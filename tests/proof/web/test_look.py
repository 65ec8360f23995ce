"""How the console looks: accessible in both colours, on a phone, without JavaScript, and in the documentation."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

import lash
from tests.proof.web.conftest import PATIENCE_MS
from tests.proof.web.hostile import OWNED, TEXTS, plant
from tests.proof.web.shop import LIVE, PROCESS, SESSION, fill_shop, open_shop
from tests.web.site import fill

SCREENSHOTS = Path(folder) if (folder := os.environ.get("LASH_SCREENSHOTS")) else None
"""Where the pictures of the documentation are written: ``LASH_SCREENSHOTS=docs/assets/console``."""
PAGES = {
    "overview": "",
    "sessions": "sessions",
    "session": f"session?id={SESSION}",
    "session-running": f"session?id={LIVE}",
    "processes": "processes",
    "process": f"process?id={PROCESS}",
    "process-waiting": "process?id=refund-4690",
    "inbox": "inbox",
    "queue": "queue",
    "queue-dead": "queue?show=dead",
    "queue-check": "queue?show=dead&check=requeue",
    "workers": "workers",
    "triggers": "triggers",
    "tokens": "tokens",
    "storage": "storage",
    "doctor": "storage?check=doctor",
    "acts": "acts",
}
"""The pages that are looked at, by the names of their pictures."""
COLOURFUL = ("overview", "session", "session-running", "process", "inbox", "queue-dead")
"""Those of them that have every colour between them."""


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_it_is_accessible_in_both_colours_and_on_a_phone(page: Page, backend_url: str) -> None:
    """Axe finds nothing serious on any page, light and dark; no page is wider than a phone."""
    base = page.url
    await fill_shop(backend_url)
    async with open_shop(backend_url):
        await page.goto(f"{base}session?id={LIVE}")
        await expect(page.locator("#words")).to_contain_text("Kiruna")
        for name, path in PAGES.items():
            await page.goto(base + path)
            await _picture(page, name)
            await _is_accessible(page)
        await page.locator("#theme").select_option("dark")
        await page.goto(f"{base}session?id={SESSION}")
        await _picture(page, "session-dark")
        await page.set_viewport_size({"width": 375, "height": 760})
        for name, path in PAGES.items():
            await page.goto(base + path)
            assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
            assert await page.evaluate("document.documentElement.scrollWidth") <= 375, path
            if name in ("overview", "session"):
                await _picture(page, f"{name}-phone")
            if name in COLOURFUL:
                # Only the colours differ between the themes.
                await _is_accessible(page, {"runOnly": ["color-contrast"]})


async def _is_accessible(page: Page, options: dict[str, list[str]] | None = None) -> None:
    found = await Axe().run(page, options=options)
    serious = [each["id"] for each in found.response["violations"] if each["impact"] in ("serious", "critical")]
    assert serious == [], (page.url, found.generate_report())


async def _picture(page: Page, name: str) -> None:
    if SCREENSHOTS is not None:
        await page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=name in ("session", "process"))


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_it_is_complete_without_javascript(browser: Browser, address: str, backend_url: str) -> None:
    """A visitor without scripts sees every page, chooses colours, answers a wait, and sends a message."""
    context = await browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    await page.goto(address)
    base = page.url
    async with await lash.open(backend_url) as storage:
        await fill(storage, 1)
        await page.goto(f"{base}session?id=s0")
        await page.get_by_label("Colours").select_option("dark")
        await page.get_by_role("button", name="Set").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await expect(page.locator("#facts code")).to_have_text("s0")
        await page.get_by_label("Message", exact=True).fill("without scripts")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator("#queue")).to_contain_text("without scripts")
        await page.goto(f"{base}inbox")
        await page.get_by_role("button", name="Answer").click()
        await expect(page.locator("#found")).to_contain_text("Nothing waits for you")
        assert await storage.waits.pending() == ()
    await context.close()


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_hostile_content_runs_nowhere(page: Page, backend_url: str) -> None:
    """Scripts, links, control characters, huge texts and broken JSON in every field are text in a real browser."""
    base = page.url
    async with await lash.open(backend_url) as storage:
        # Live updates are shown, too.
        await page.goto(f"{base}sessions")
        await expect(page.locator("#stream-state")).to_have_text("live")
        planted = [await plant(storage, text) for text in TEXTS]
        await expect(page.locator("#found")).to_contain_text("<img src=x onerror")
        await _is_harmless(page)
        for name, path in PAGES.items():
            if "?id=" not in path:
                await page.goto(base + path)
                await _is_harmless(page, name)
        for session_id, process_id in planted:
            running, ended = session_id.replace(" session", " running"), process_id.replace(" process", " ended")
            pages = (("session", session_id), ("session", running), ("process", process_id), ("process", ended))
            for kind, id_ in pages:
                await page.goto(f"{base}{kind}?id={quote(id_)}")
                await expect(page.locator("#facts code")).to_have_count(1)
                await _is_harmless(page, id_)


async def _is_harmless(page: Page, where: str = "live") -> None:
    """Nothing ran, no stored text became an element or a link, and the page is not broken by its length."""
    assert await page.evaluate(OWNED.partition("=")[0]) is None, where
    assert await page.locator("main :is(img, script, iframe, object, [onerror], [onload], [onfocus])").count() == 0
    assert await page.locator('a[href*="javascript:" i]:not([href*="?"])').count() == 0, where
    assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), where
    assert await page.evaluate("document.documentElement.outerHTML.length") < 1_000_000, where
