"""Fixtures of the tests of protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocols.front_end.clients import Programs, installed


@pytest.fixture(scope="session")
def scripts() -> Path:
    """The JavaScript clients, installed once for each environment."""
    return installed()


@pytest.fixture
def programs(backend_url: str, tmp_path: Path, scripts: Path) -> Iterator[Programs]:
    """Starts servers and workers, and kills the ones still running when the test ends."""
    started = Programs(backend_url, tmp_path, scripts)
    yield started
    started.close()
