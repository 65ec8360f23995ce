"""Seals values again: under another key, or for the first time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from lash.backend.attachment.sealed import SealedBytes
from lash.backend.table_rows import stored_pages
from lash.model.maintenance import RewrapReport
from lash.plan.sealed import SEALED_COLUMNS
from lash.stores.attachment import ByteStore
from lash.stores.table_rows import RowStore, RowTable

_GUARDS: Final = "lash_attachment_fences"
"""One row for all bytes that the byte store may hold."""


async def rewrap(rows: RowStore, byte_store: ByteStore) -> AsyncIterator[RewrapReport]:
    """Seal every value again that the current key has not sealed; yield what each page changed."""
    for table in rows.tables:
        if table.name in SEALED_COLUMNS:
            async for page in stored_pages(rows, table):
                yield RewrapReport(rows=await rows.reseal(table, page))
        if table.name == _GUARDS and isinstance(byte_store, SealedBytes):
            async for attachment_id in _attachments(rows, table):
                yield RewrapReport(attachments=int(await byte_store.rewrap(attachment_id)))


async def _attachments(rows: RowStore, table: RowTable) -> AsyncIterator[str]:
    place = table.columns.index("attachment_id")
    async for page in stored_pages(rows, table):
        for row in page:
            yield str(row[place])
