"""Exports a session to a file."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from lash.model.value import Count, Value
from lash.stores.storage import Storage
from lash.transfer.lines import (
    AttachmentLine,
    BlobLine,
    Counts,
    EndLine,
    Line,
    data_line_count,
    data_lines,
    encode_line,
)
from lash.transfer.progress import Meter, OnProgress
from lash.transfer.snapshot import Snapshot, take

_LINES_AT_ONCE: Final = 500


class ByteSink(Protocol):
    """A sink of bytes, such as a file opened in binary mode."""

    def write(self, data: bytes, /) -> object: ...


class Exported(Value, frozen=True, kw_only=True):
    """The result of an export. Two sessions with the same ``content`` are equal, whatever their ids."""

    session_id: str
    revision: Count | None
    counts: Counts
    content: str
    bytes: Count


async def export_session(
    storage: Storage,
    session_id: str,
    stream: ByteSink,
    *,
    with_queue: bool = False,
    progress: OnProgress | None = None,
) -> Exported:
    """Write one revision of a session as JSON lines, with all branches, checkpoint, usage and attachments.

    Workers may go on with the session. ``with_queue`` adds the queued batches, claimed or not. Raises
    SessionNotFound or SessionDeleted before anything is written, and AttachmentNotFound if an attachment is removed on
    the way; what was written then has no end line, and no import accepts it.
    """
    taken = await take(storage, session_id, with_queue=with_queue)
    snapshot, header = taken.snapshot, taken.header()
    writer = _LineWriter(stream, Meter("line", _line_count(snapshot), progress))
    await writer.write([header])
    await writer.write(_session_lines(snapshot))
    for attachment in snapshot.attachments:
        stored = await storage.attachments.get(session_id, attachment.ref.id)
        await writer.write([attachment])
        await writer.write(data_lines(stored.content))
    await writer.write(snapshot.batches)
    identity = await asyncio.to_thread(lambda: snapshot.identity)
    await writer.write([EndLine(content=identity, sha256=writer.sha256)])
    return Exported(
        session_id=session_id,
        revision=taken.revision,
        counts=snapshot.counts,
        content=identity,
        bytes=writer.byte_count,
    )


def _line_count(snapshot: Snapshot) -> int:
    """Return the number of lines, the first and the last one included."""
    sizes = [len(content) for content in snapshot.blobs.values()]
    sizes += [attachment.ref.byte_len for attachment in snapshot.attachments]
    return 2 + sum(1 for _ in snapshot.lines()) + sum(map(data_line_count, sizes)) + len(snapshot.batches)


def _session_lines(snapshot: Snapshot) -> Iterator[Line]:
    """Return the lines of a session with the bytes of its blobs, up to its attachments."""
    for line in snapshot.lines():
        if isinstance(line, AttachmentLine):
            return
        yield line
        if isinstance(line, BlobLine):
            yield from data_lines(snapshot.blobs[line.ref])


class _LineWriter:
    """Writes lines in a thread, in chunks, and hashes them."""

    def __init__(self, stream: ByteSink, meter: Meter) -> None:
        self._stream = stream
        self._meter = meter
        self._hash = hashlib.sha256()
        self.byte_count = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    async def write(self, lines: Iterable[Line]) -> None:
        rest = iter(lines)
        while count := await asyncio.to_thread(self._write_some, rest):
            self._meter.step(count)

    def _write_some(self, lines: Iterator[Line]) -> int:
        count = 0
        for line in islice(lines, _LINES_AT_ONCE):
            raw = encode_line(line)
            self._stream.write(raw)
            self._hash.update(raw)
            self.byte_count += len(raw)
            count += 1
        return count
