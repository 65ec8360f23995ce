"""Reads one huge input with little memory, and prints the lash error that it raised.

``python -m tests.proof.fuzz.small_child CASE DIRECTORY``
"""

from __future__ import annotations

import asyncio
import base64
import io
import resource
import sys
from collections.abc import Callable

import apsw
import msgspec

import lash
from lash.base.codec import decode
from lash.base.compression import BlobRef, Codec, StoredBlob, unpack
from lash.transfer import import_session
from tests.factories.session import commit, draft, node

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MEMORY = 1 << 30
CLAIMED = 1 << 40
PIECE = bytes(1 << 20)


def bomb(megabytes: int) -> bytes:
    """Return a small frame that expands to this many megabytes."""
    compressor = zstd.ZstdCompressor()
    return b"".join(compressor.compress(PIECE) for _ in range(megabytes)) + compressor.flush()


class Endless(io.RawIOBase):
    """A file without end: one line, or the same line again and again."""

    def __init__(self, head: list[bytes], line: bytes) -> None:
        super().__init__()
        self._head = head
        self._line = line

    def readline(self, size: int | None = -1, /) -> bytes:
        if self._head:
            return self._head.pop(0)
        return self._line if self._line.endswith(b"\n") else self._line * ((size or 1) // len(self._line) + 1)


async def read_row(directory: str) -> None:
    """Load a session whose blob was replaced by a bomb."""
    url = f"sqlite:///{directory}/bomb.db"
    async with await lash.open(url) as storage:
        revision = (await storage.sessions.create("s")).revision
        turn = commit(revision, node("a"), checkpoint=draft(components={"tool_state": b"x" * 10_000}))
        await storage.session("s").commit(turn)
    connection = apsw.Connection(f"{directory}/bomb.db")
    connection.execute("UPDATE lash_blobs SET codec = 'zstd', size = ?, content = ?", (CLAIMED, bomb(2_048)))
    connection.close()
    async with await lash.open(url) as storage:
        await storage.session("s").load()


async def read_file(first: bytes, line: bytes, limit: int, *head: object) -> None:
    lines = [*filter(None, [first]), *(msgspec.json.encode(each) + b"\n" for each in head)]
    async with await lash.open("sqlite://") as storage:
        await import_session(storage, Endless(lines, line), max_line_bytes=limit)


COUNTS = dict.fromkeys(("frames", "nodes", "blobs", "usage", "attachments", "batches"), 0)
HEAD = (
    {"kind": "header", "format": "lash.session", "version": 1, "session_id": "s", "created_at_ms": 1, "counts": COUNTS},
    {"kind": "meta", "name": "s", "created_at_ms": 1, "relation": {"kind": "root"}},
    {"kind": "blob", "ref": "0" * 64},
)
DATA = msgspec.json.encode({"kind": "data", "base64": base64.b64encode(PIECE).decode()}) + b"\n"
CASES: dict[str, Callable[[str], object]] = {
    "bomb": lambda _: unpack(StoredBlob(BlobRef("0" * 64), Codec.ZSTD, CLAIMED, bomb(2_048))),
    "bomb in a row": lambda directory: asyncio.run(read_row(directory)),
    "line without an end": lambda _: asyncio.run(read_file(b"", b"x" * 65_536, 64 << 20)),
    "many lines of data": lambda _: asyncio.run(read_file(b"", DATA, 8 << 20, *HEAD)),
    "deep file": lambda _: asyncio.run(read_file(b"[" * (32 << 20) + b"\n", b"\n", 64 << 20)),
    "long number": lambda _: decode("9" * (8 << 20), dict, "a record"),
}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        CASES[sys.argv[1]](sys.argv[2])
    except lash.LashError as error:
        print(type(error).__name__, f"{error!s:.200}")  # noqa: T201 (its answer)


if __name__ == "__main__":
    main()
