"""A pytest plugin: the suites of Strands get the adapter wherever they ask for a storage in memory or in files."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import strands.storage
import strands.storage.in_memory_storage
import strands.storage.local_file_storage
from suite_urls import url_of

from lash.adapters.strands import LashStorage

_URL = url_of(tempfile.mkdtemp())
_numbers = itertools.count()


class InMemoryStorage(LashStorage):
    """The adapter in the place of the storage in memory; each one is alone."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 (what the storage takes)
        super().__init__(_URL, **kwargs)
        self._prefix = f"memory {next(_numbers)}/"


class LocalFileStorage(LashStorage):
    """The adapter in the place of files: those of one directory are shared."""

    def __init__(self, base_dir: str = "./.strands/", **kwargs: Any) -> None:  # noqa: ANN401 (what the storage takes)
        super().__init__(_URL, **kwargs)
        self._prefix = f"files {str(Path(base_dir).absolute()).replace('/', ' ')}/"


strands.storage.InMemoryStorage = InMemoryStorage
strands.storage.in_memory_storage.InMemoryStorage = InMemoryStorage
strands.storage.LocalFileStorage = LocalFileStorage
strands.storage.local_file_storage.LocalFileStorage = LocalFileStorage
