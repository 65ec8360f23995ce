"""A real Chromium for the tests of pages.

The program is taken from ``LASH_TEST_CHROMIUM`` (a path) or from ``PATH``. As root on Debian it is installed from
Debian's package. Where none of these works, the tests are skipped, and fail with ``CI=true``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright

from tests.debian_programs import install_package

VARIABLE: Final = "LASH_TEST_CHROMIUM"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Return the path of the program; install it, or skip the test, if there is none."""
    found = os.environ.get(VARIABLE)
    if found is None and install_package("chromium", lambda: _on_path() is not None):
        found = _on_path()
    if found is None:
        text = f"no Chromium: install Debian's package chromium, or set {VARIABLE} to its path"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return found


def _on_path() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start the browser, and close it at the end."""
    path = find_chromium()
    async with async_playwright() as playwright:
        # Chromium's own sandbox needs rights that containers do not have.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
