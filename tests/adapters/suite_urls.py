"""Storages for suites of frameworks: on SQLite, or on the PostgreSQL server of ``LASH_ADAPTERS_POSTGRES`` if it is set.

Plugins of suites import it; it runs in the environment of a framework.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from typing import Final

import pytest

import lash.sync

_directory: Final = tempfile.TemporaryDirectory()
_used: Final[set[str]] = set()


def url_of(place: str) -> str:
    """Return the URL of the storage that stands for a directory or database of the framework, in this process."""
    name = hashlib.blake2b(f"{os.getpid()} {place}".encode(), digest_size=8).hexdigest()
    server = os.environ.get("LASH_ADAPTERS_POSTGRES")
    if server is None:
        url = f"sqlite:///{_directory.name}/{name}.db"
    else:
        url = f"{server}{'&' if '?' in server else '?'}schema=suite_{name}"
    _used.add(url)
    return url


@pytest.fixture(autouse=True)
def storages_are_closed() -> Iterator[None]:
    """Close the storages that a test has used."""
    yield
    while _used:
        lash.sync.shared(_used.pop()).close()
