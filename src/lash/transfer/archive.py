"""Reads an exported file and verifies all of it before anything is written to a storage."""

from __future__ import annotations

import hashlib
import tempfile
from typing import IO, Final, Protocol, TypeVar

import msgspec

from lash.base.compression import BlobRef
from lash.errors import CorruptData, InvalidInput
from lash.model.attachment import StoredAttachment
from lash.model.session.message import AttachmentRef
from lash.transfer.check import check_line
from lash.transfer.lines import (
    AttachmentLine,
    BatchLine,
    BlobLine,
    CheckpointLine,
    DataLine,
    EndLine,
    FrameLine,
    HeaderLine,
    HeadLine,
    Line,
    MetaLine,
    NodeLine,
    RecordLine,
    UsageLine,
    decode_line,
)
from lash.transfer.proof import Collector, check_version, check_whole, require_hash
from lash.transfer.snapshot import Snapshot

_L = TypeVar("_L", bound=Line)
_IN_MEMORY: Final = 8 * 1024 * 1024
_ORDER: Final[tuple[type, ...]] = (
    HeaderLine,
    MetaLine,
    HeadLine,
    FrameLine,
    NodeLine,
    CheckpointLine,
    BlobLine,
    UsageLine,
    RecordLine,
    AttachmentLine,
    BatchLine,
    EndLine,
)
_ONCE: Final = (HeaderLine, MetaLine, HeadLine, CheckpointLine, EndLine)


class ByteSource(Protocol):
    """A source of lines of bytes, such as a file opened in binary mode."""

    def readline(self, size: int, /) -> bytes: ...


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read and verified. The bytes of its attachments are in a temporary file."""

    header: HeaderLine
    snapshot: Snapshot
    spool: IO[bytes]
    offsets: dict[str, int]

    def attachment(self, ref: AttachmentRef) -> StoredAttachment:
        """Return an attachment with its bytes, which were verified when they were read."""
        self.spool.seek(self.offsets[ref.id])
        return StoredAttachment(ref=ref, content=self.spool.read(ref.byte_len))


class ArchiveReader:
    """Reads a file line by line. Every error names the line."""

    def __init__(self, stream: ByteSource, max_line_bytes: int) -> None:
        self._stream = stream
        self._limit = max_line_bytes
        self._hash = hashlib.sha256()
        self._content = hashlib.sha256()
        self._number = 0
        self._lines: dict[type, list[Line]] = {kind: [] for kind in _ORDER}
        self._rank = -1
        self._bytes = Collector()
        self._blobs: dict[BlobRef, bytes] = {}
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 (closed by close)
        self._offsets: dict[str, int] = {}

    def close(self) -> None:
        """Close the temporary file."""
        self._spool.close()

    @property
    def ended(self) -> bool:
        """Whether the last line was read."""
        return bool(self._lines[EndLine])

    def read(self, count: int) -> int:
        """Read at most so many lines, and return how many were read."""
        before = self._number
        while not self.ended and self._number - before < count:
            raw = self._next_raw()
            try:
                self._take(raw)
            except CorruptData as error:
                raise CorruptData(f"line {self._number}: {error}") from None
            except InvalidInput as error:
                raise InvalidInput(f"line {self._number}: {error}") from None
            self._hash.update(raw)
        return self._number - before

    @property
    def number(self) -> int:
        """The number of the last line that was read."""
        return self._number

    def archive(self) -> Archive:
        """Return the contents of the file, once it is read to its end."""
        header = self._one(HeaderLine)
        snapshot = Snapshot(
            meta=self._one(MetaLine),
            head=next(iter(self._all(HeadLine)), None),
            frames=tuple(self._all(FrameLine)),
            nodes=tuple(self._all(NodeLine)),
            checkpoint=next(iter(self._all(CheckpointLine)), None),
            blobs=self._blobs,
            usage=tuple(self._all(UsageLine)),
            records=tuple(self._all(RecordLine)),
            attachments=tuple(self._all(AttachmentLine)),
            batches=tuple(self._all(BatchLine)),
        )
        try:
            check_whole(header, snapshot)
        except InvalidInput as error:
            raise InvalidInput(f"line {self._number}: {error}") from None
        return Archive(header=header, snapshot=snapshot, spool=self._spool, offsets=self._offsets)

    def _next_raw(self) -> bytes:
        raw = self._stream.readline(self._limit + 1)
        self._number += 1
        if not isinstance(raw, bytes):
            raise InvalidInput(f"the stream must give bytes, not {type(raw).__name__}: open the file in binary mode")
        if len(raw) > self._limit:
            raise InvalidInput(f"line {self._number} is longer than {self._limit:,} bytes")
        if not raw.endswith(b"\n"):
            raise InvalidInput(f"line {self._number}: the file ends before its end line")
        return raw

    def _take(self, raw: bytes) -> None:
        if self._number == 1:
            check_version(raw)
        line = decode_line(raw)
        if isinstance(line, DataLine):
            self._bytes.add(line.content)
            return
        self._finish_bytes()
        self._check_order(line)
        check_line(line)
        self._lines[type(line)].append(line)
        if not isinstance(line, HeaderLine | BatchLine | EndLine):
            self._content.update(raw)
        if isinstance(line, BlobLine | AttachmentLine):
            self._bytes.begin(line)
        if isinstance(line, EndLine):
            self._check_end(line)

    def _check_order(self, line: Line) -> None:
        rank = _ORDER.index(type(line))
        repeated = isinstance(line, _ONCE) and bool(self._lines[type(line)])
        missing = rank > 1 and not self._lines[MetaLine]
        if rank < self._rank or repeated or missing or (rank > 0 and not self._lines[HeaderLine]):
            raise InvalidInput(f"a {line.__struct_config__.tag} line cannot stand here")
        self._rank = rank

    def _finish_bytes(self) -> None:
        """Verify the bytes of the blob or attachment whose data lines have just ended."""
        line, content = self._bytes.end()
        if isinstance(line, BlobLine):
            require_hash(line.ref, content)
            if line.ref in self._blobs:
                raise InvalidInput(f"blob {line.ref} occurs twice")
            self._blobs[line.ref] = content
        elif isinstance(line, AttachmentLine):
            require_hash(line.ref.id, content)
            if line.ref.id in self._offsets:
                raise InvalidInput(f"attachment {line.ref.id} occurs twice")
            if line.ref.byte_len != len(content):
                raise CorruptData(f"attachment {line.ref.id} has {len(content):,} bytes, not {line.ref.byte_len:,}")
            self._offsets[line.ref.id] = self._spool.tell()
            self._spool.write(content)

    def _check_end(self, line: EndLine) -> None:
        if line.sha256 != self._hash.hexdigest() or line.content != self._content.hexdigest():
            raise CorruptData("the file was changed: its hashes differ from the ones written with it")
        if self._stream.readline(1):
            raise InvalidInput("something follows the end line")

    def _all(self, kind: type[_L]) -> list[_L]:
        return [line for line in self._lines[kind] if isinstance(line, kind)]

    def _one(self, kind: type[_L]) -> _L:
        for line in self._all(kind):
            return line
        raise InvalidInput(f"line {self._number}: the file has no {kind.__name__}")
