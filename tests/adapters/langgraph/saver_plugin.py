"""A pytest plugin: the core suite of LangGraph gets the adapter wherever it asks for a SQLite saver."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

import lash.sync
import tests.conftest_checkpointer as suite
from lash.adapters.langgraph import LashSaver


@contextmanager
def _saver() -> Iterator[LashSaver]:
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{directory}/threads.db"
        # Some tests measure when the first item of a stream comes: opening the file is not part of that.
        lash.sync.shared(url).counts()
        try:
            yield LashSaver(url)
        finally:
            lash.sync.shared(url).close()


@contextmanager
def _blocking() -> Iterator[LashSaver]:
    with _saver() as saver:
        suite._apply_strict_msgpack(saver)
        yield saver


@contextmanager
def _encrypted() -> Iterator[LashSaver]:
    with _saver() as saver:
        saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
        yield saver


@asynccontextmanager
async def _async() -> AsyncIterator[LashSaver]:
    with _blocking() as saver:
        yield saver


suite._checkpointer_sqlite = _blocking
suite._checkpointer_sqlite_aes = _encrypted
suite._checkpointer_sqlite_aio = _async
