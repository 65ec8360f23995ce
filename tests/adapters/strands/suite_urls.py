"""The storages of Strands' suites: on SQLite, or on PostgreSQL if ``LASH_ADAPTERS_POSTGRES`` is the URL of a server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash.sync

_used: set[str] = set()


def url_in(directory: str | Path) -> str:
    """Return the URL of the storage that stands for a directory."""
    path = Path(directory).absolute()
    server = os.environ.get("LASH_ADAPTERS_POSTGRES")
    if server is None:
        url = f"sqlite:///{path}/strands.db"
    else:
        name = hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()
        url = f"{server}{'&' if '?' in server else '?'}schema=suite_{name}"
    _used.add(url)
    return url


@pytest.fixture(autouse=True)
def storages_are_closed() -> Iterator[None]:
    """Close the storages that a test has used."""
    yield
    while _used:
        lash.sync.shared(_used.pop()).close()
