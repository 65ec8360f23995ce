"""Fixtures of the tests of programs."""

from __future__ import annotations

from tests.runtime.conftest import bench, world

__all__ = ["bench", "world"]
