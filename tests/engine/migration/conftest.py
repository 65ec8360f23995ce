"""Migrations are tested on storages that have none yet."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def backend_url(backend_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without lash tables."""
    if backend_name == "memory":
        return "sqlite://"
    if backend_name == "sqlite":
        return f"sqlite:///{tmp_path / 'lash.db'}"
    url: str = request.getfixturevalue("postgres_schema_url")
    return url
