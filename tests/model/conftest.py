"""The world that a machine runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.world import World, open_world


@pytest.fixture
def world(tmp_path: Path, postgres_storage_url: str) -> Iterator[World]:
    """Both backends, empty, on one event loop that only the machine runs."""
    with asyncio.Runner() as runner:
        opened = open_world(runner, f"sqlite:///{tmp_path / 'lash.db'}?synchronous=normal", postgres_storage_url)
        try:
            yield opened
        finally:
            runner.run(opened.close())
