"""Imports a session from a file."""

from __future__ import annotations

import asyncio
from typing import Final

from lash.base.limits import check_identifier, check_integer
from lash.errors import InvalidInput
from lash.model.attachment import StoredAttachment
from lash.model.session.message import AttachmentRef
from lash.model.value import Count, Value
from lash.stores.storage import Storage
from lash.transfer.archive import ArchiveReader, ByteSource
from lash.transfer.lines import MAX_LINE_BYTES, Counts
from lash.transfer.progress import Meter, OnProgress
from lash.transfer.write import SessionWriter

_LINES_AT_ONCE: Final = 500


class Imported(Value, frozen=True, kw_only=True):
    """The result of an import. ``created`` is False if the session already existed, with the same content."""

    session_id: str
    source_session_id: str
    created: bool
    revision: Count
    counts: Counts
    batches_added: Count


async def import_session(
    storage: Storage,
    stream: ByteSource,
    *,
    session_id: str | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    progress: OnProgress | None = None,
) -> Imported:
    """Create a session from a file of `export_session`, under its id or another one.

    The file is read to its end and verified before anything is written; bad lines raise InvalidInput or CorruptData
    with the number of the line. The session then appears in one commit, or not at all: a storage whose budget is too
    small raises CommitTooLarge. Queued work that the file holds is added after that, batch by batch.

    An existing session of this id raises SessionExists, unless it is the same: then only what is missing of the
    queue is added. Repeating an import that failed or was killed finishes it.
    """
    if session_id is not None:
        check_identifier("session_id", session_id)
    reader = ArchiveReader(stream, check_integer("max_line_bytes", max_line_bytes, at_least=1))
    try:
        lines = Meter("line", None, progress)
        while not reader.ended:
            lines.step(await asyncio.to_thread(reader.read, _LINES_AT_ONCE))
        archive = await asyncio.to_thread(reader.archive)

        async def get(ref: AttachmentRef) -> StoredAttachment:
            return await asyncio.to_thread(archive.attachment, ref)

        snapshot = archive.snapshot
        target = archive.header.session_id if session_id is None else session_id
        steps = Meter("step", len(snapshot.attachments) + 1, progress)
        writer = SessionWriter(storage, target, snapshot, get)
        try:
            await asyncio.to_thread(writer.prepare)
        except InvalidInput as error:
            raise InvalidInput(f"line {reader.number}: the lines above are not one session: {error}") from None
        written = await writer.write(steps)
    finally:
        reader.close()
    return Imported(
        session_id=target,
        source_session_id=archive.header.session_id,
        created=written.created,
        revision=written.revision,
        counts=snapshot.counts,
        batches_added=written.batches_added,
    )
