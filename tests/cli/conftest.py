"""The command on both backends. A storage in memory has no command line."""

from __future__ import annotations

import pytest

from tests.cli.seed import Seeded, seed


@pytest.fixture(params=("sqlite", "postgres"))
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def seeded(backend_url: str) -> Seeded:
    """A storage with one of everything."""
    return seed(backend_url)
