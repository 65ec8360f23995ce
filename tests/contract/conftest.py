"""The fixture that runs the public contract suite on our own backends."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lash.postgres.engine.opening import Opening
from lash.testing.clock import ManualClock
from lash.testing.harness import Harness, MemoryHarness, NotShared, URLHarness
from tests.contract.harnesses import PostgresHarness, SealedHarness
from tests.known_differences import CONTRACT_DIFFERENCES
from tests.warm_connections import WarmConnections

_HERE = Path(__file__).parent
_OTHER_BYTES = ("::TestAttachmentFiles::", "::TestAttachmentS3::")
"""The contract of attachments again, with the bytes in files and in an S3 server."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def warm_connections() -> AsyncIterator[WarmConnections]:
    """The connections that tests on PostgreSQL use one after another."""
    warm = WarmConnections()
    yield warm
    await warm.close()


@pytest_asyncio.fixture(loop_scope="session")
async def harness(
    backend_name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    warm_connections: WarmConnections,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Harness]:
    """An empty database on each backend in turn, with a clock that the test moves."""
    monkeypatch.setattr(Opening, "connect", warm_connections.replace_connect())
    opened = _harness(backend_name, request, tmp_path)
    yield SealedHarness(opened) if request.config.getoption("--sealed") else opened
    await opened.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave costs and other byte stores to ``make proof``; expect the listed differences to fail.

    The list of differences stays closed because they must fail. All tests run in one event loop, because a connection
    belongs to the loop that opened it.
    """
    for item in items:
        if item.path.parent != _HERE:
            continue
        if pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if item.path.stem.endswith(("_cost", "_costs")) or any(name in item.nodeid for name in _OTHER_BYTES):
            item.add_marker(pytest.mark.proof)
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("backend_name") != "memory":
            continue
        reason = CONTRACT_DIFFERENCES.get(item.nodeid.partition("::")[2].partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, raises=NotShared, strict=True))


def _harness(backend_name: str, request: pytest.FixtureRequest, directory: Path) -> URLHarness | MemoryHarness:
    if backend_name == "memory":
        return MemoryHarness()
    if backend_name == "sqlite":
        file = shutil.copy(request.getfixturevalue("migrated_file"), directory)
        return URLHarness("sqlite", f"sqlite:///{file}", ManualClock())
    return PostgresHarness(request.getfixturevalue("postgres_url_at_rest"), has_clock=True)
