"""Imports the driver, so that one error reports that it is not installed."""

from __future__ import annotations

from lash.errors import ConfigError

try:
    import asyncpg
except ImportError as missing:
    raise ConfigError("PostgreSQL needs the driver asyncpg: pip install 'lash-runtime[postgres]'") from missing

__all__ = ["asyncpg"]
