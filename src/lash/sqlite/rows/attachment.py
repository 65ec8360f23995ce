"""The manifest of attachments on SQLite, and their bytes in the same database."""

from __future__ import annotations

from collections.abc import Sequence

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
from lash.sqlite.engine.database import Database, Reader, SQLiteValue, Transaction
from lash.sqlite.engine.parameters import json_array
from lash.sqlite.rows.session.lookup import find_session_key
from lash.sqlkit.rows import Flag, Text


class SQLiteAttachmentManifest:
    """The manifest of one SQLite storage; the contract is `lash.stores.attachment.AttachmentManifest`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def announce(self, intent: Intent, decide: DecideAnnouncement, /) -> str | None:
        def body(transaction: Transaction) -> str | None:
            session_key = find_session_key(transaction, intent.session_id)
            guard = transaction.one(ByteGuardRow, "attachment_guard", attachment_id=intent.ref.id)
            version = decide(guard)
            if version is None:
                return None
            transaction.run("attachment_announce", session_key=session_key, **_line(intent, transaction.now_ms))
            token = transaction.one(
                Text,
                "attachment_keep",
                attachment_id=intent.ref.id,
                byte_len=intent.ref.byte_len,
                version=version,
                token=new_id(),
                now_ms=transaction.now_ms,
            )
            return None if token is None else token.text

        return await self._database.write(body)

    async def confirm(self, session_id: str, attachment_id: str, token: str) -> bool:
        found = self._database.read(
            lambda reader: reader.one(
                Flag, "attachment_confirm", session_id=session_id, attachment_id=attachment_id, token=token
            )
        )
        return found is not None and found.value

    async def row(self, session_id: str, attachment_id: str) -> AttachmentRow | None:
        def body(reader: Reader) -> AttachmentRow | None:
            find_session_key(reader, session_id)
            return reader.one(AttachmentRow, "attachment_row", session_id=session_id, attachment_id=attachment_id)

        return self._database.read(body)

    async def lines(self, session_id: str, after: str, limit: int) -> Sequence[AttachmentRow]:
        def body(reader: Reader) -> Sequence[AttachmentRow]:
            key = find_session_key(reader, session_id)
            return reader.all(AttachmentRow, "attachment_lines", session_key=key, after=after, limit=limit)

        return await self._database.read_in_thread(body)

    async def stamp(self, session_id: str, attachment_ids: Sequence[str]) -> tuple[str, ...]:
        def body(transaction: Transaction) -> tuple[str, ...]:
            return stamp_attachments(transaction, find_session_key(transaction, session_id), attachment_ids)

        return await self._database.write(body)

    async def now_ms(self) -> int:
        return self._database.read(lambda reader: reader.now_ms)

    async def uncommitted(self, newest_ms: int, after: PageKey, limit: int) -> Sequence[AttachmentRow]:
        return await self._database.read_in_thread(
            lambda reader: reader.all(
                AttachmentRow,
                "attachment_uncommitted",
                newest_ms=newest_ms,
                intent_at_ms=after.intent_at_ms,
                attachment_id=after.attachment_id,
                session_key=after.session_key,
                limit=limit,
            )
        )

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        def body(transaction: Transaction) -> bool:
            key = find_session_key(transaction, session_id)
            return transaction.run("attachment_forget", session_key=key, attachment_id=attachment_id) > 0

        return await self._database.write(body)

    async def drop(self, row: AttachmentRow) -> bool:
        def body(transaction: Transaction) -> bool:
            dropped = transaction.run(
                "attachment_drop",
                session_key=row.session_key,
                attachment_id=row.attachment_id,
                intent_at_ms=row.intent_at_ms,
            )
            return dropped > 0

        return await self._database.write(body)

    async def names(self, attachment_ids: Sequence[str]) -> dict[str, int]:
        rows = await self._database.read_in_thread(
            lambda reader: reader.all(NameCount, "attachment_names", attachment_ids=json_array(attachment_ids))
        )
        return {row.attachment_id: row.count for row in rows}

    async def unnamed(self, after: str, limit: int) -> UnnamedBytes:
        def body(reader: Reader) -> UnnamedBytes:
            last = reader.all(Text, "attachment_guard_ids", after=after, limit=limit)
            if not last:
                return UnnamedBytes(reader.now_ms, None, [])
            guards = reader.all(ByteGuardRow, "attachment_unnamed", after=after, last_id=last[-1].text)
            return UnnamedBytes(reader.now_ms, last[-1].text, guards)

        return await self._database.read_in_thread(body)

    async def move(self, move: GuardStep, sweeper: str | None) -> bool:
        def body(transaction: Transaction) -> bool:
            moved = transaction.run(
                "attachment_move",
                attachment_id=move.attachment_id,
                version=move.version,
                phase=move.to.value,
                sweeper=sweeper,
                now_ms=transaction.now_ms,
            )
            return moved > 0

        return await self._database.write(body)

    async def remove(self, guard: ByteGuardRow) -> None:
        await self._database.write(
            lambda transaction: transaction.run(
                "attachment_remove", attachment_id=guard.attachment_id, version=guard.version
            )
        )


class SQLiteBytes:
    """The bytes of attachments in the database itself; the contract is `lash.stores.attachment.ByteStore`."""

    def __init__(self, database: Database, compression: Compression) -> None:
        self._database = database
        self._compression = compression

    @property
    def durability(self) -> Durability:
        return Durability.DURABLE if self._database.durable else Durability.INLINE

    async def put(self, attachment_id: str, content: bytes) -> None:
        blob = await off_loop(content, lambda: blobs.pack(content, self._compression))

        def body(transaction: Transaction) -> None:
            transaction.run(
                "attachment_bytes_put",
                attachment_id=attachment_id,
                codec=blob.codec.value,
                size=blob.size,
                content=transaction.seals.content(ATTACHMENT, blob.content, attachment_id),
            )

        await self._database.write(body)

    async def get(self, attachment_id: str) -> bytes | None:
        def body(reader: Reader) -> bytes | None:
            row = reader.one(ArtifactRow, "attachment_bytes_get", attachment_id=attachment_id)
            return None if row is None else blobs.unpack_stored(row.ref, row.codec, row.size, row.content)

        return await self._database.read_in_thread(body)

    async def delete(self, attachment_id: str) -> None:
        await self._database.write(
            lambda transaction: transaction.run("attachment_bytes_delete", attachment_id=attachment_id)
        )

    async def sweep_stale(self) -> int:
        return 0


def stamp_attachments(transaction: Transaction, session_key: int, attachment_ids: Sequence[str]) -> tuple[str, ...]:
    """Stamp attachments of a session as committed, and return which of the ids it has."""
    rows = transaction.all(
        Text,
        "attachment_stamp",
        session_key=session_key,
        attachment_ids=json_array(attachment_ids),
        now_ms=transaction.now_ms,
    )
    return tuple(sorted(row.text for row in rows))


def _line(intent: Intent, now_ms: int) -> dict[str, SQLiteValue]:
    ref, owner = intent.ref, intent.owner
    return {
        "attachment_id": ref.id,
        "media_type": ref.media_type,
        "byte_len": ref.byte_len,
        "width": ref.width,
        "height": ref.height,
        "label": ref.label,
        "owner_kind": None if owner is None else owner.kind.value,
        "owner_id": None if owner is None else owner.id,
        "now_ms": now_ms,
    }
