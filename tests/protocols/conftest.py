"""Fixtures of the tests of protocols."""

from __future__ import annotations

from tests.web.conftest import storage

__all__ = ["storage"]
