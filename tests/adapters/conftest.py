"""Storages for the tests of adapters. ``LASH_ADAPTERS_POSTGRES`` is the URL of a server; `tools.adapters` sets it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash.sync


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty storage, which is closed after the test."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/adapter.db"
    else:
        server = os.environ["LASH_ADAPTERS_POSTGRES"]
        url = f"{server}{'&' if '?' in server else '?'}schema=adapter_{uuid.uuid4().hex[:12]}"
    yield url
    lash.sync.shared(url).close()
