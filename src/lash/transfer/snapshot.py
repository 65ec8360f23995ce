"""One session as values, which exports write, imports read, and both compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from lash.base.compression import BlobRef
from lash.errors import AttachmentNotFound, Conflict
from lash.model.attachment import AttachmentEntry
from lash.model.queue import Batch, BatchDraft
from lash.model.session.node import Node
from lash.model.session.session import FullGraph, SessionMeta, SessionRead
from lash.stores.session import Session
from lash.stores.storage import Storage
from lash.transfer.lines import (
    ENTRY_VERSION,
    FORMAT,
    RECORD_VERSION,
    VERSION,
    AttachmentLine,
    BatchLine,
    BlobLine,
    CheckpointLine,
    Counts,
    FrameLine,
    HeaderLine,
    HeadLine,
    Line,
    MetaLine,
    NodeLine,
    RecordLine,
    UsageLine,
    encode_line,
)
from lash.transfer.pages import PAGE, pages
from lash.transfer.record import record_lines

_MAX_TRIES: Final = 20
"""How often a session may change while it is read before the export gives up."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One session without the bytes of its attachments. ``batches`` are the queued ones, if requested."""

    meta: MetaLine
    head: HeadLine | None = None
    frames: tuple[FrameLine, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    checkpoint: CheckpointLine | None = None
    blobs: dict[BlobRef, bytes] = msgspec.field(default_factory=dict)
    usage: tuple[UsageLine, ...] = ()
    records: tuple[RecordLine, ...] = ()
    attachments: tuple[AttachmentLine, ...] = ()
    batches: tuple[BatchLine, ...] = ()

    @property
    def counts(self) -> Counts:
        return Counts(
            frames=len(self.frames),
            nodes=len(self.nodes),
            blobs=len(self.blobs),
            usage=len(self.usage),
            attachments=len(self.attachments),
            batches=len(self.batches),
            records=len(self.records) or UNSET,
        )

    @property
    def version(self) -> int:
        """The version of a file with this content: the oldest that knows all of it."""
        if any(line.has_newer_entry for line in self.nodes):
            return ENTRY_VERSION
        return RECORD_VERSION if self.records or self.meta.has_labels else VERSION

    def lines(self) -> Iterator[Line]:
        """Return the lines of the session itself, in the order of the file, without data and queue."""
        yield self.meta
        if self.head is not None:
            yield self.head
        yield from self.frames
        yield from self.nodes
        if self.checkpoint is not None:
            yield self.checkpoint
        yield from (BlobLine(ref=ref) for ref in self.blobs)
        yield from self.usage
        yield from self.records
        yield from self.attachments

    @property
    def lasting(self) -> Snapshot:
        """The session without the records that expire, which may be gone in one of two copies."""
        kept = tuple(line for line in self.records if line.expires_at_ms is None)
        return msgspec.structs.replace(self, records=kept)

    @property
    def identity(self) -> str:
        """The hash of the session itself; equal copies have equal hashes."""
        total = hashlib.sha256()
        for line in self.lines():
            total.update(encode_line(line))
        return total.hexdigest()


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and the revision numbers of its session."""

    snapshot: Snapshot
    session_id: str
    revision: int | None
    updated_at_ms: int | None

    def header(self) -> HeaderLine:
        return HeaderLine(
            format=FORMAT,
            version=self.snapshot.version,
            session_id=self.session_id,
            created_at_ms=self.snapshot.meta.created_at_ms,
            counts=self.snapshot.counts,
            revision=self.revision,
            updated_at_ms=self.updated_at_ms,
        )


async def take(storage: Storage, session_id: str, *, with_queue: bool) -> Taken:
    """Read one revision of a session, and the queue that belongs to it if asked.

    A turn that ends meanwhile makes no difference: either its work is still queued, or its result is there.
    """
    session = storage.session(session_id)
    for _ in range(_MAX_TRIES):
        before = await _queue(storage, session_id) if with_queue else ()
        read = await session.load(FullGraph())
        after = await _queue(storage, session_id) if with_queue else ()
        if _ids(before) != _ids(after):
            continue
        records = await record_lines(storage, session_id)
        if not records or await _is_current(session, read):
            return await _assemble(storage, session, read, after, records)
    raise Conflict(f"session {session_id!r} does not stand still; stop its workers and try again")


async def _is_current(session: Session, read: SessionRead | None) -> bool:
    """Return whether no commit followed the one that was read, so that records read after it belong to it."""
    head = await session.head()
    return (None if head is None else head.revision) == (None if read is None else read.head.revision)


def describe(meta: SessionMeta) -> MetaLine:
    """Return the metadata as a line."""
    return MetaLine(
        name=meta.name,
        created_at_ms=meta.created_at_ms,
        relation=meta.relation,
        model=meta.model,
        cwd=meta.cwd,
        owner=meta.owner,
        labels=meta.labels,
        metadata=meta.metadata,
        expires_at_ms=meta.expires_at_ms,
    )


def draft_of(line: BatchLine, session_id: str) -> BatchDraft:
    """Return the batch of a line, for this session."""
    return BatchDraft(
        session_id=session_id,
        payloads=line.payloads,
        source_key=line.source_key,
        delivery=line.delivery,
        slot=line.slot,
        merge_key=line.merge_key,
        available_at_ms=line.available_at_ms,
        priority=line.priority,
    )


def batch_lines(batches: Sequence[Batch]) -> tuple[BatchLine, ...]:
    """Return queued work as lines."""
    return tuple(
        BatchLine(
            payloads=each.payloads,
            delivery=each.delivery,
            slot=each.slot,
            source_key=each.source_key,
            merge_key=each.merge_key,
            # A parked turn is not waited for in another storage: it runs again there.
            available_at_ms=0 if each.is_parked else each.available_at_ms,
            priority=each.priority,
        )
        for each in batches
    )


async def queued(storage: Storage, session_id: str) -> tuple[BatchLine, ...]:
    """Return the queued batches of a session."""
    return batch_lines(await _queue(storage, session_id))


async def _assemble(
    storage: Storage,
    session: Session,
    read: SessionRead | None,
    batches: Sequence[Batch],
    records: tuple[RecordLine, ...],
) -> Taken:
    meta = describe(await session.meta())
    attachments = await _attachments(storage, session.session_id)
    snapshot = Snapshot(meta=meta, records=records, attachments=attachments, batches=batch_lines(batches))
    if read is None:
        return Taken(snapshot=snapshot, session_id=session.session_id, revision=None, updated_at_ms=None)
    head, checkpoint = read.head, read.checkpoint
    snapshot = msgspec.structs.replace(
        snapshot,
        head=HeadLine(config=head.config, current_frame_id=head.current_frame_id, leaf_node_id=head.leaf_node_id),
        frames=tuple(FrameLine(frame=frame) for frame in read.frames),
        nodes=node_lines(read.graph.nodes),
        checkpoint=CheckpointLine(
            ref=checkpoint.ref,
            turn_state=checkpoint.manifest.turn_state,
            components=checkpoint.manifest.components,
            plugin_snapshot_revision=checkpoint.manifest.plugin_snapshot_revision,
        ),
        blobs=await _blobs(session, read),
        usage=tuple(UsageLine(entry=entry) for entry in read.usage),
    )
    return Taken(
        snapshot=snapshot,
        session_id=session.session_id,
        revision=head.revision,
        updated_at_ms=head.updated_at_ms,
    )


def node_lines(nodes: Sequence[Node]) -> tuple[NodeLine, ...]:
    """Order nodes so that parents come first, with their places of insertion if that is another order."""
    places = {node.node_id: place for place, node in enumerate(nodes, start=1)}
    by_id = {node.node_id: node for node in nodes}
    ordered: dict[str, Node] = {}
    for node in nodes:
        chain: list[Node] = []
        current: Node | None = node
        while current is not None and current.node_id not in ordered:
            chain.append(current)
            current = None if current.parent_node_id is None else by_id.get(current.parent_node_id)
        ordered.update((each.node_id, each) for each in reversed(chain))
    if list(ordered) == list(places):
        return tuple(NodeLine(node=node) for node in ordered.values())
    return tuple(NodeLine(node=node, place=places[node.node_id]) for node in ordered.values())


async def _blobs(session: Session, read: SessionRead) -> dict[BlobRef, bytes]:
    """Return the bytes of the checkpoint and the frames, once each, by ref."""
    components = read.checkpoint.manifest.components
    blobs = {ref: read.checkpoint.components[key] for key, ref in components.items()}
    for frame in read.frames:
        ref = frame.execution_state_ref
        if ref is not None and ref not in blobs:
            blobs[ref] = await session.blob(ref)
    return dict(sorted(blobs.items()))


async def _attachments(storage: Storage, session_id: str) -> tuple[AttachmentLine, ...]:
    lines: list[AttachmentLine] = []
    async for page in pages(lambda cursor: storage.attachments.list(session_id, limit=PAGE, cursor=cursor)):
        lines.extend([_attachment(entry) for entry in page.entries if await _arrived(storage, entry)])
    return tuple(lines)


async def _arrived(storage: Storage, entry: AttachmentEntry) -> bool:
    """Return whether the attachment has bytes; one whose writer died after announcing it has none."""
    if entry.committed_at_ms is not None:
        return True
    try:
        await storage.attachments.get(entry.session_id, entry.ref.id)
    except AttachmentNotFound:
        return False
    return True


def _attachment(entry: AttachmentEntry) -> AttachmentLine:
    return AttachmentLine(ref=entry.ref, committed=entry.committed_at_ms is not None, owner=entry.owner)


async def _queue(storage: Storage, session_id: str) -> tuple[Batch, ...]:
    batches: list[Batch] = []
    while True:
        page = await storage.queue.list(session_id, limit=PAGE, after_seq=batches[-1].seq if batches else 0)
        batches.extend(page)
        if len(page) < PAGE:
            return tuple(batches)


def _ids(batches: Sequence[Batch]) -> tuple[str, ...]:
    return tuple(batch.batch_id for batch in batches)
