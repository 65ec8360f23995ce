"""The fixture that runs the public contract suite on our own backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.register_assert_rewrite("lash.testing.contract", "lash.testing.factories")

from lash.testing.clock import ManualClock  # noqa: E402 (after the assertions are prepared)
from lash.testing.harness import Harness, MemoryHarness, NotShared, URLHarness  # noqa: E402
from tests.known_differences import CONTRACT_DIFFERENCES  # noqa: E402


@pytest_asyncio.fixture
async def harness(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    """An empty database on each backend in turn, with a clock that the test moves."""
    opened = MemoryHarness() if backend_name == "memory" else URLHarness("sqlite", f"sqlite:///{tmp_path / 'lash.db'}", ManualClock())
    yield opened
    await opened.close()
