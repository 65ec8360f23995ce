"""The world that a machine runs in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.model.world import World, open_world

_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave time to make a failure small, and any time to a long run."""
    for item in items:
        if item.path.parent == _FOLDER:
            item.add_marker(pytest.mark.timeout(0 if "LASH_MODEL_EXAMPLES" in os.environ else 900))


@pytest.fixture
def world(tmp_path: Path, postgres_storage_url: str) -> Iterator[World]:
    """Both backends, empty, on one event loop that only the machine runs."""
    with asyncio.Runner() as runner:
        opened = open_world(runner, f"sqlite:///{tmp_path / 'lash.db'}?synchronous=normal", postgres_storage_url)
        try:
            yield opened
        finally:
            runner.run(opened.close())
