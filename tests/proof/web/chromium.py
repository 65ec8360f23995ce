"""A real Chromium for the tests of pages.

The program is taken from ``LASH_TEST_CHROMIUM`` (a path) or from ``PATH``. As root on Debian it is installed from
Debian's package. Where none of these works, the tests are skipped, and fail with ``CI=true``.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright

VARIABLE: Final = "LASH_TEST_CHROMIUM"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_INSTALL_S: Final = 300.0


def find_chromium() -> str:
    """Return the path of the program; install it, or skip the test, if there is none."""
    found = os.environ.get(VARIABLE) or _on_path()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = _on_path()
    if found is None:
        text = f"no Chromium: install Debian's package chromium, or set {VARIABLE} to its path"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return found


def _on_path() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    """Install Debian's package; one process at a time, because apt allows no second one."""
    with (Path(tempfile.gettempdir()) / "lash-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _on_path() is not None:
            return
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "-qq", "chromium"]
        for command in (install, ["apt-get", "update", "-qq"], install):
            done = subprocess.run(command, env=environment, capture_output=True, timeout=_INSTALL_S, check=False)
            if command is install and done.returncode == 0:
                return


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
