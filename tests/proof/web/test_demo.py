"""``lash demo --web``: the death of a worker, seen in a browser."""

from __future__ import annotations

import asyncio
import re
import signal
import sys

from playwright.async_api import expect

from tests.proof.web.chromium import chromium

PATIENCE_S = 60.0


async def test_the_demo_is_shown_live() -> None:
    """It starts when a browser has opened the console, which shows the turn and its crash; Ctrl-C ends it."""
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "lash", "demo", "--web"), stdout=asyncio.subprocess.PIPE
    )
    assert demo.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S * 2), chromium() as browser:
            address = (await _line(demo.stdout, "token="))[1]
            page = await browser.new_page()
            expect.set_options(timeout=PATIENCE_S * 1_000)
            await page.goto(address)
            base = page.url
            session_id = (await _line(demo.stdout, "the session of the demo is"))[-1]
            # The session exists as soon as its first message is sent.
            await expect(page.locator("#recent")).to_contain_text(session_id)
            await page.goto(f"{base}session?id={session_id}")
            await expect(page.locator("#turns")).to_contain_text("1 crash")
            await expect(page.locator("#chat")).to_contain_text("Your weekend in Rome is booked.")
            await _line(demo.stdout, "Look around in the browser")
            demo.send_signal(signal.SIGINT)
            assert await demo.wait() == 0
    finally:
        if demo.returncode is None:
            demo.kill()
            await demo.communicate()


async def _line(output: asyncio.StreamReader, part: str) -> list[str]:
    """Return the words of the next line that contains a text, without the time before them."""
    async for line in output:
        text = re.sub(r"^\s*[\d.]+ s\s+", "", line.decode())
        if part in text:
            return text.split()
    raise AssertionError(f"the demo ended before it wrote {part!r}")
