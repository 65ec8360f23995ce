"""Fixtures of the tests of agents."""

from __future__ import annotations

from tests.runtime.conftest import bench

__all__ = ["bench"]
