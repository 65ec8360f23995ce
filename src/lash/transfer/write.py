"""Writes a snapshot as a session, whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from lash.backend.record import RecordValues
from lash.base.compression import Compression
from lash.base.limits import MAX_INTEGER
from lash.errors import CommitTooLarge, LashError, SessionExists, StoreUnavailable
from lash.model.attachment import StoredAttachment
from lash.model.record import RecordPut
from lash.model.session.checkpoint import CheckpointDraft
from lash.model.session.commit import Commit, CommitBudget, ReplaceFull
from lash.model.session.created import CreatedSession
from lash.model.session.frame import AgentFrame
from lash.model.session.message import AttachmentRef
from lash.model.session.session import SessionMeta
from lash.plan.queue.queue import encode_batch
from lash.plan.session.commit import CommitRules, prepare_commit
from lash.plan.session.meta import encode_meta
from lash.plan.session.node import place_replacement
from lash.stores.storage import Storage
from lash.transfer.check import check_attachment, meta_of
from lash.transfer.progress import Meter
from lash.transfer.proof import nodes_in_order
from lash.transfer.record import put_of
from lash.transfer.snapshot import Snapshot, draft_of, queued, take

GetAttachment: TypeAlias = Callable[[AttachmentRef], Awaitable[StoredAttachment]]
"""The source of the attachments' bytes."""
_WITHOUT_LIMITS = CommitRules(
    compression=Compression.LOW_LATENCY, budget=CommitBudget(max_bytes=MAX_INTEGER, max_rows=MAX_INTEGER)
)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result: whether the session is new, its revision, and how many batches were added."""

    created: bool
    revision: int
    batches_added: int


class SessionWriter:
    """Writes one snapshot under an id."""

    def __init__(self, storage: Storage, session_id: str, snapshot: Snapshot, get_attachment: GetAttachment) -> None:
        self._storage = storage
        self._session = storage.session(session_id)
        self._id = session_id
        self._snapshot = snapshot
        self._get_attachment = get_attachment
        self._identity = ""
        self._commit: Commit | None = None
        self._puts: tuple[RecordPut, ...] = ()

    async def write(self, meter: Meter) -> Written:
        """Write the session unless it exists already, then its queue.

        Nothing is created before all of the snapshot was checked. Raises SessionExists if another session has the id.
        """
        if self._commit is None:
            await asyncio.to_thread(self.prepare)
        meta = self._meta()
        created = await self._storage.sessions.create(
            self._id,
            name=meta.name,
            model=meta.model,
            cwd=meta.cwd,
            relation=meta.relation,
            owner=meta.owner,
            labels=meta.labels,
            metadata=meta.metadata,
            expires_at_ms=meta.expires_at_ms,
        )
        is_there = not created.created and await self._is_there()
        if not is_there:
            try:
                await self._fill(created, meta, meter)
            except LashError as error:
                await self._take_back(created, error)
                raise
        added = await self._add_queue()
        head = await self._session.head()
        return Written(
            created=not is_there, revision=created.revision if head is None else head.revision, batches_added=added
        )

    def prepare(self) -> None:
        """Check everything as the storage will, or raise InvalidInput."""
        self._identity = self._snapshot.identity
        encode_meta(self._meta(), self._id)
        for line in self._snapshot.batches:
            encode_batch(draft_of(line, self._id))
        for attachment in self._snapshot.attachments:
            check_attachment(self._id, attachment)
        self._puts = tuple(put_of(line, self._id) for line in self._snapshot.records)
        encoded = RecordValues(Compression.LOW_LATENCY).encode_changes(self._puts)
        self._commit = self._make_commit()
        if self._commit is not None:
            prepared = prepare_commit(self._commit, self._id, _WITHOUT_LIMITS, encoded)
            place_replacement(self._id, prepared.nodes, segment_count=0, node_seq=0)

    def _meta(self) -> SessionMeta:
        return meta_of(self._snapshot.meta, self._id)

    def _make_commit(self) -> Commit | None:
        head, checkpoint, blobs = self._snapshot.head, self._snapshot.checkpoint, self._snapshot.blobs
        if head is None or checkpoint is None:
            return None
        return Commit(
            session_id=self._id,
            expected_revision=0,
            turn_id=f"import:{self._identity}",
            config=head.config,
            frames=tuple(self._with_bytes(line.frame) for line in self._snapshot.frames),
            current_frame_id=head.current_frame_id,
            graph=ReplaceFull(
                nodes=nodes_in_order(self._snapshot), leaf_node_id=head.leaf_node_id, replaced_node_count=0
            ),
            checkpoint=CheckpointDraft(
                turn_state=checkpoint.turn_state,
                plugin_snapshot_revision=checkpoint.plugin_snapshot_revision,
                components={key: blobs[ref] for key, ref in checkpoint.components.items()},
            ),
            usage=tuple(line.entry for line in self._snapshot.usage),
            attachments=tuple(line.ref.id for line in self._snapshot.attachments if line.committed),
            records=self._puts,
        )

    def _with_bytes(self, frame: AgentFrame) -> AgentFrame:
        ref = frame.execution_state_ref
        if ref is None:
            return frame
        return msgspec.structs.replace(frame, execution_state_ref=None, execution_state=self._snapshot.blobs[ref])

    async def _is_there(self) -> bool:
        """Return whether the existing session is this one, whole; an interrupted import of it is continued."""
        found = (await take(self._storage, self._id, with_queue=True)).snapshot
        if found.lasting.identity == self._snapshot.lasting.identity:
            return True
        begun = msgspec.structs.replace(found.meta, created_at_ms=self._snapshot.meta.created_at_ms)
        mine = {line.ref.id for line in self._snapshot.attachments}
        is_ours = begun == self._snapshot.meta and {line.ref.id for line in found.attachments} <= mine
        is_ours = is_ours and all(line in self._snapshot.records for line in found.records)
        if found.head is not None or found.batches or not is_ours:
            raise SessionExists(self._id, "is not the one to be imported")
        return False

    async def _fill(self, created: CreatedSession, meta: SessionMeta, meter: Meter) -> None:
        await self._session.save_meta(meta)
        for line in self._snapshot.attachments:
            stored = await self._get_attachment(line.ref)
            await self._storage.attachments.put(
                self._id,
                stored.content,
                line.ref.media_type,
                owner=line.owner,
                width=line.ref.width,
                height=line.ref.height,
                label=line.ref.label,
            )
            meter.step()
        if self._commit is not None:
            await self._publish(msgspec.structs.replace(self._commit, expected_revision=created.revision))
        else:
            for put in self._puts:
                await self._storage.records.put_many((put,))
        meter.step()

    async def _publish(self, commit: Commit) -> None:
        try:
            await self._session.commit(commit)
        except CommitTooLarge as error:
            clear = CommitTooLarge(error.measure, error.actual, error.limit)
            size = f"session {self._id!r} is one commit of {error.actual:,} {error.measure}; this storage accepts"
            advice = "open it with a larger budget (lash.CommitBudget) for the import"
            clear.args = (f"{size} at most {error.limit:,}: {advice}",)
            raise clear from error

    async def _take_back(self, created: CreatedSession, error: LashError) -> None:
        """Delete the unfinished session, unless it may be complete or another writer created it."""
        if not created.created or isinstance(error, StoreUnavailable):
            return
        if await self._session.head() is None:
            await self._storage.sessions.delete(self._id)

    async def _add_queue(self) -> int:
        """Add the queued batches that an interrupted import of the same file has not added."""
        wanted = self._snapshot.batches
        if not wanted:
            return 0
        there = await queued(self._storage, self._id)
        if wanted[: len(there)] != there:
            raise SessionExists(self._id, "has other work in its queue")
        for line in wanted[len(there) :]:
            await self._storage.queue.enqueue(draft_of(line, self._id))
        return len(wanted) - len(there)
