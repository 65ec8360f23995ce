"""The manifest of attachments on PostgreSQL, and their bytes in the same database."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lash.base import compression as blobs
from lash.base.compression import Compression
from lash.base.ids import new_id
from lash.base.threads import off_loop
from lash.model.session.session import Durability
from lash.plan.artifact import ArtifactRow
from lash.plan.attachment import (
    AttachmentRow,
    ByteGuardRow,
    DecideAnnouncement,
    GuardStep,
    Intent,
    NameCount,
    PageKey,
    UnnamedBytes,
)
from lash.plan.sealed import ATTACHMENT
from lash.postgres.engine.database import Database
from lash.postgres.rows.session.lookup import missing, require_session
from lash.sqlkit.rows import Flag, Number, Text


class _Announced(msgspec.Struct, frozen=True, array_like=True):
    """The session of an announcement, and the token of its byte guard unless the bytes are being deleted."""

    session_key: int
    token: str | None


class PostgresAttachmentManifest:
    """The manifest of one PostgreSQL storage; the contract is `lash.stores.attachment.AttachmentManifest`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def announce(self, intent: Intent, _decide: DecideAnnouncement, /) -> str | None:
        # The rule stands in the statement a second time: it takes one round trip instead of two, and the contract tests
        # of puts and sweeps run on both. A retry after a lost connection is harmless: the guard keeps its token.
        ref, owner = intent.ref, intent.owner
        answer = await self._database.write_one(
            _Announced,
            "attachment_announce",
            intent.session_id,
            *(ref.id, ref.media_type, ref.byte_len, ref.width, ref.height, ref.label),
            *((None, None) if owner is None else (owner.kind.value, owner.id)),
            new_id(),
            repeatable=True,
        )
        if answer is None:
            raise await missing(self._database, intent.session_id)
        return answer.token

    async def confirm(self, session_id: str, attachment_id: str, token: str) -> bool:
        found = await self._database.read_one(Flag, "attachment_confirm", session_id, attachment_id, token)
        return found is not None and found.value

    async def row(self, session_id: str, attachment_id: str) -> AttachmentRow | None:
        row = await self._database.read_one(AttachmentRow, "attachment_row", session_id, attachment_id)
        if row is None:
            await require_session(self._database, session_id)
        return row

    async def lines(self, session_id: str, after: str, limit: int) -> Sequence[AttachmentRow]:
        rows = await self._database.read_all(AttachmentRow, "attachment_lines", session_id, after, limit)
        if not rows:
            await require_session(self._database, session_id)
        return rows

    async def stamp(self, session_id: str, attachment_ids: Sequence[str]) -> tuple[str, ...]:
        stamped = await self._database.write_all(
            Text, "attachment_stamp", session_id, list(attachment_ids), repeatable=True
        )
        if not stamped:
            await require_session(self._database, session_id)
        return tuple(sorted(row.text for row in stamped))

    async def now_ms(self) -> int:
        answer = await self._database.read_one(Number, "attachment_now")
        return 0 if answer is None else answer.number

    async def uncommitted(self, newest_ms: int, after: PageKey, limit: int) -> Sequence[AttachmentRow]:
        key = (after.intent_at_ms, after.attachment_id, after.session_key)
        return await self._database.read_all(AttachmentRow, "attachment_uncommitted", newest_ms, *key, limit)

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        forgotten = await self._database.write_one(
            Flag, "attachment_forget", session_id, attachment_id, repeatable=True
        )
        if forgotten is None:
            await require_session(self._database, session_id)
        return forgotten is not None

    async def drop(self, row: AttachmentRow) -> bool:
        arguments = (row.session_key, row.attachment_id, row.intent_at_ms)
        return await self._database.write_one(Flag, "attachment_drop", *arguments, repeatable=True) is not None

    async def names(self, attachment_ids: Sequence[str]) -> dict[str, int]:
        rows = await self._database.read_all(NameCount, "attachment_names", list(attachment_ids))
        return {row.attachment_id: row.count for row in rows}

    async def unnamed(self, after: str, limit: int) -> UnnamedBytes:
        page = await self._database.read_one(UnnamedBytes, "attachment_unnamed", after, limit)
        return page or UnnamedBytes(0, None, [])

    async def move(self, move: GuardStep, sweeper: str | None) -> bool:
        # A retry of a step that was taken finds another version; the next sweep continues from there.
        arguments = (move.attachment_id, move.version, move.to.value, sweeper)
        return await self._database.write_one(Flag, "attachment_move", *arguments, repeatable=True) is not None

    async def remove(self, guard: ByteGuardRow) -> None:
        await self._database.write_one(Flag, "attachment_remove", guard.attachment_id, guard.version, repeatable=True)


class PostgresBytes:
    """The bytes of attachments in the database itself; the contract is `lash.stores.attachment.ByteStore`."""

    durability = Durability.DURABLE

    def __init__(self, database: Database, compression: Compression) -> None:
        self._database = database
        self._compression = compression

    async def put(self, attachment_id: str, content: bytes) -> None:
        blob = await off_loop(content, lambda: blobs.pack(content, self._compression))
        sealed = self._database.seals.content(ATTACHMENT, blob.content, attachment_id)
        arguments = (attachment_id, blob.codec.value, blob.size, sealed)
        await self._database.write_one(Flag, "attachment_bytes_put", *arguments, repeatable=True)

    async def get(self, attachment_id: str) -> bytes | None:
        row = await self._database.read_one(ArtifactRow, "attachment_bytes_get", attachment_id)
        if row is None:
            return None
        return await off_loop(row.content, lambda: blobs.unpack_stored(row.ref, row.codec, row.size, row.content))

    async def delete(self, attachment_id: str) -> None:
        await self._database.write_one(Flag, "attachment_bytes_delete", attachment_id, repeatable=True)

    async def sweep_stale(self) -> int:
        return 0
