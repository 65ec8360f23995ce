"""Fixtures of the tests of the MCP server."""

from __future__ import annotations

from tests.web.conftest import storage

__all__ = ["storage"]
