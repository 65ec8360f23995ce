"""The fixture that runs the public contract suite on our own backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lash.testing.clock import ManualClock
from lash.testing.harness import MemoryHarness, NotShared, URLHarness
from tests.contract.harnesses import PostgresHarness
from tests.known_differences import CONTRACT_DIFFERENCES


@pytest_asyncio.fixture
async def harness(
    backend_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[URLHarness | MemoryHarness]:
    """An empty database on each backend in turn, with a clock that the test moves."""
    opened = _harness(backend_name, request, tmp_path)
    yield opened
    await opened.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect the listed differences to fail, each for its one reason; the list stays closed because they must."""
    for item in items:
        reason = CONTRACT_DIFFERENCES.get(item.nodeid.partition("::")[2].partition("[")[0])
        callspec = getattr(item, "callspec", None)
        if reason is not None and callspec is not None and callspec.params.get("backend_name") == "memory":
            item.add_marker(pytest.mark.xfail(reason=reason, raises=NotShared, strict=True))


def _harness(backend_name: str, request: pytest.FixtureRequest, folder: Path) -> URLHarness | MemoryHarness:
    if backend_name == "memory":
        return MemoryHarness()
    if backend_name == "sqlite":
        return URLHarness("sqlite", f"sqlite:///{folder / 'lash.db'}", ManualClock())
    return PostgresHarness(request.getfixturevalue("postgres_storage_url"))
