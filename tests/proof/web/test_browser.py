"""The console in a real browser, beside a real worker process: live, operable, and found again."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

import lash
from tests.proof.web.conftest import PATIENCE_S, Worker
from tests.proof.web.program import approval, broken, declared, speaker
from tests.web.site import fill


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"])
async def test_a_day_of_an_operator(page: Page, worker: Worker, backend_url: str) -> None:
    """See a turn live, approve, discard a letter, edit, fork, and follow a reply across the death of its worker."""
    base = page.url
    async with declared(backend_url, worker=False) as app:
        # A session that another process commits appears without a reload, and its turn in the drawing.
        await expect(page.locator("#stream-state")).to_have_text("live")
        await app.session("chat", speaker).ask("hello", timeout_s=PATIENCE_S)
        await expect(page.locator("#recent")).to_contain_text("chat")
        await expect(page.locator("#pace")).to_contain_text("1 turn")
        await _approve(page, base, app)
        await _discard(page, base, app)
        await _edit(page, base)
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
        await expect(page.locator("#turns .timeline")).to_contain_text("attempt 1 crashed")
        # What was done is recorded.
        await page.goto(f"{base}acts")
        for verb in ("resolve", "requeue", "discard", "edit", "fork"):
            await expect(page.locator("#found")).to_contain_text(verb)


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


async def _edit(page: Page, base: str) -> None:
    """Send another message instead of the first one: it is answered on a branch, and the first branch is kept."""
    await page.goto(f"{base}session?id=chat")
    await page.get_by_text("Edit", exact=True).click()
    await page.get_by_label("Message instead of this one").fill("good morning")
    await page.get_by_role("button", name="Send on a new branch").click()
    await expect(page.locator("#chat article.assistant")).to_contain_text("you said good morning")
    await expect(page.locator("#tree circle.side")).to_have_count(2)
    # The dot of the first reply leads to its branch, which can be made the conversation again.
    await page.locator("#tree a", has_text="you said hello").click()
    await expect(page.locator("#chat .notice")).to_contain_text("A branch beside the conversation")
    await page.get_by_role("button", name="Continue from here").click()
    await expect(page.locator("#chat article.assistant")).to_contain_text("you said hello")


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
    for key, title in (("d", "Storage"), ("a", "Acts"), ("q", "Queue")):
        await page.keyboard.press("g")
        await page.keyboard.press(key)
        await expect(page.locator("h1")).to_have_text(title)
        await expect(page.locator("#stream-state")).to_have_text("live")
    await page.keyboard.press("/")
    await expect(page.locator("[data-key=search]")).to_be_focused()
    await page.keyboard.type("s1")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{base}queue?prefix=s1&state=")
    # The filter is in the address, so it is there again after a look at a session.
    await page.locator("#found a.row").first.click()
    await expect(page.locator("#facts code")).to_have_text("s1")
    await page.go_back()
    await expect(page).to_have_url(f"{base}queue?prefix=s1&state=")
    await expect(page.locator("[data-key=search]")).to_have_value("s1")
    await expect(page.locator("#stream-state")).to_have_text("live")
    await page.locator("h1").click()
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_visible()
