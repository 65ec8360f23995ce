"""Databases for programs that are crashed often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.test_crash_matrix import Databases, databases

__all__ = ["databases"]


@pytest.fixture
def databases_at_rest(
    backend_name: str, request: pytest.FixtureRequest, tmp_path: Path, migrated_file: Path
) -> Databases:
    """Empty storages whose time only the test moves, one after the other."""
    reused = request.getfixturevalue("reused_database_at_rest") if backend_name == "postgres" else None
    return Databases(tmp_path, migrated_file, reused)
