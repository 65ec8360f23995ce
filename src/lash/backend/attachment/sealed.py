"""Seals the bytes of attachments before another byte store gets them."""

from __future__ import annotations

from lash.base.seal import Seals
from lash.base.threads import off_loop
from lash.model.session.session import Durability
from lash.plan.sealed import ATTACHMENT
from lash.stores.attachment import ByteStore


def sealed_bytes(store: ByteStore | None, seals: Seals) -> ByteStore | None:
    """Return the store, sealed if the storage is; None if the database holds the bytes."""
    return SealedBytes(store, seals) if store is not None and seals.is_active else store


class SealedBytes:
    """Sealed bytes in a directory or an object store; the contract is `lash.stores.attachment.ByteStore`."""

    def __init__(self, store: ByteStore, seals: Seals) -> None:
        self._store = store
        self._seals = seals

    @property
    def durability(self) -> Durability:
        return self._store.durability

    async def put(self, attachment_id: str, content: bytes) -> None:
        sealed = await off_loop(content, lambda: self._seals.content(ATTACHMENT, content, attachment_id))
        await self._store.put(attachment_id, sealed)

    async def get(self, attachment_id: str) -> bytes | None:
        stored = await self._store.get(attachment_id)
        if stored is None:
            return None
        return await off_loop(stored, lambda: self._seals.open_content(ATTACHMENT, stored, attachment_id))

    async def rewrap(self, attachment_id: str) -> bool:
        """Seal the bytes again unless they are sealed with the current key; return whether that was necessary."""
        stored = await self._store.get(attachment_id)
        if stored is None or self._seals.is_current(stored):
            return False
        await self.put(attachment_id, self._seals.open_content(ATTACHMENT, stored, attachment_id))
        return True

    async def delete(self, attachment_id: str) -> None:
        await self._store.delete(attachment_id)

    async def sweep_stale(self) -> int:
        return await self._store.sweep_stale()
