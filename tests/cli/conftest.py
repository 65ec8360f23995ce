"""The command on both backends. A storage in memory has no command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.seed import Seeded, seed


@pytest.fixture(params=("sqlite", "postgres"))
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def empty_url(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without lash's tables."""
    if backend_name == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    url: str = request.getfixturevalue("postgres_schema_url")
    return url


@pytest.fixture
def seeded(backend_url: str) -> Seeded:
    """A storage with one of everything."""
    return seed(backend_url)
