"""Errors of the ChatKit adapter."""

from __future__ import annotations

from lash.errors import Conflict


class AlreadyExists(Conflict):
    """A thread has an item of this id; nothing was stored. `LashStore.save_item` replaces an item."""

    def __init__(self, thread_id: str, item_id: str) -> None:
        super().__init__(f"thread {thread_id!r} has an item {item_id!r}; use save_item to replace it")
        self.thread_id = thread_id
        self.item_id = item_id


class AttachmentExists(Conflict):
    """There is an attachment of this id, with other bytes or announced by another request; nothing was stored."""

    def __init__(self, attachment_id: str) -> None:
        super().__init__(f"attachment {attachment_id!r} exists; delete it first, or use another id")
        self.attachment_id = attachment_id
