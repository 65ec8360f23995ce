"""The attachments of a storage: its manifest in the database and a byte store, kept consistent by byte guards."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from lash.backend.attachment.sweep import Sweep
from lash.base.backoff import backoff, jitter
from lash.base.limits import check_identifier, check_limit
from lash.base.threads import off_loop
from lash.errors import AttachmentNotFound, InvalidInput, StoreUnavailable
from lash.model.attachment import AttachmentEntry, AttachmentOwner, AttachmentPage, StoredAttachment, SweepReport
from lash.model.session.message import AttachmentRef
from lash.model.session.session import Durability
from lash.plan.attachment import (
    Intent,
    check_age,
    check_attachment_id,
    check_attachment_ids,
    decode_attachment_page,
    decode_entry,
    decode_line_cursor,
    decode_line_page,
    decode_page_key,
    plan_announcement,
    prepare_put,
    verify,
)
from lash.stores.attachment import AttachmentManifest, ByteStore, IsOwnerGone

_MAX_TRIES: Final = 14
"""Enough pauses to wait some seconds for a sweep that deletes the same bytes."""
_FIRST_PAUSE_S: Final = 0.01
"""Deleting the bytes of one attachment takes a few milliseconds."""
_LONGEST_PAUSE_S: Final = 0.5
"""A slow byte store may take this long."""
_BEING_DELETED: Final = "a sweep is deleting these bytes; if it crashed, the next sweep continues the deletion"
_SWEPT: Final = "sweeps removed its announcement again and again; sweep only older attachments"


class Attachments:
    """The attachments of one storage; the contract is `lash.stores.attachment.AttachmentStore`."""

    def __init__(self, manifest: AttachmentManifest, byte_store: ByteStore, database: Durability) -> None:
        self._manifest = manifest
        self._bytes = byte_store
        self._database = database

    @property
    def durability(self) -> Durability:
        return Durability.INLINE if Durability.INLINE in (self._database, self._bytes.durability) else self._database

    async def put(
        self,
        session_id: str,
        content: bytes,
        media_type: str,
        *,
        owner: AttachmentOwner | None = None,
        width: int | None = None,
        height: int | None = None,
        label: str | None = None,
    ) -> AttachmentRef:
        described = {"owner": owner, "width": width, "height": height, "label": label}
        intent = await off_loop(content, lambda: prepare_put(session_id, content, media_type, **described))
        obstacle = ""
        for tries in range(_MAX_TRIES):
            found = await self._try_put(intent)
            if found is None:
                return intent.ref
            obstacle = found
            await asyncio.sleep(jitter(backoff(tries, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)))
        raise StoreUnavailable(f"attachment {intent.ref.id} could not be put: {obstacle}")

    async def get(self, session_id: str, attachment_id: str) -> StoredAttachment:
        entry = await self._required(session_id, attachment_id)
        content = await self._bytes.get(attachment_id)
        if content is None:
            # It may have been forgotten and swept since; the bytes are missing only if the session still names it.
            entry = await self._required(session_id, attachment_id)
            content = await self._bytes.get(attachment_id)
        return await off_loop(content, lambda: verify(entry, content))

    async def entry(self, session_id: str, attachment_id: str) -> AttachmentEntry | None:
        check_identifier("session_id", session_id)
        row = await self._manifest.row(session_id, check_attachment_id(attachment_id))
        return None if row is None else decode_entry(row)

    async def commit_refs(self, session_id: str, attachment_ids: Collection[str]) -> tuple[str, ...]:
        check_identifier("session_id", session_id)
        return await self._manifest.stamp(session_id, check_attachment_ids(attachment_ids))

    async def list(self, session_id: str, *, limit: int = 100, cursor: str | None = None) -> AttachmentPage:
        check_identifier("session_id", session_id)
        size, after = check_limit(limit), decode_line_cursor(cursor)
        return decode_line_page(await self._manifest.lines(session_id, after, size + 1), size)

    async def list_uncommitted(
        self, older_than_ms: int = 0, *, limit: int = 100, cursor: str | None = None
    ) -> AttachmentPage:
        size, after, age = check_limit(limit), decode_page_key(cursor), check_age(older_than_ms)
        rows = await self._manifest.uncommitted(await self._manifest.now_ms() - age, after, size + 1)
        return decode_attachment_page(rows, size)

    async def forget(self, session_id: str, attachment_id: str) -> bool:
        check_identifier("session_id", session_id)
        return await self._manifest.forget(session_id, check_attachment_id(attachment_id))

    async def sweep(self, older_than_ms: int, is_owner_gone: IsOwnerGone, *, dry_run: bool = False) -> SweepReport:
        if not callable(is_owner_gone):
            raise InvalidInput(f"is_owner_gone must be an async function, not {type(is_owner_gone).__name__}")
        sweep = Sweep(self._manifest, self._bytes, is_owner_gone, dry_run=dry_run)
        return await sweep.run(check_age(older_than_ms))

    async def _required(self, session_id: str, attachment_id: str) -> AttachmentEntry:
        entry = await self.entry(session_id, attachment_id)
        if entry is None:
            raise AttachmentNotFound(session_id, attachment_id)
        return entry

    async def _try_put(self, intent: Intent) -> str | None:
        """Announce and write, and return None; return the obstacle if a sweep interfered."""
        attachment_id = intent.ref.id
        token = await self._manifest.announce(intent, plan_announcement)
        if token is None:
            return _BEING_DELETED
        await self._bytes.put(attachment_id, intent.content)
        return None if await self._manifest.confirm(intent.session_id, attachment_id, token) else _SWEPT
