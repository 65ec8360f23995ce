"""OpenAI's ChatKit on a lash storage: install ``lash-runtime[chatkit]``."""

from __future__ import annotations

from lash.adapters.attached import not_installed

try:
    from lash.adapters.chatkit.attachments import LashAttachmentStore
    from lash.adapters.chatkit.errors import AlreadyExists, AttachmentExists
    from lash.adapters.chatkit.store import LashStore
except ModuleNotFoundError as error:
    raise not_installed("ChatKit", extra="chatkit") from error

__all__ = ["AlreadyExists", "AttachmentExists", "LashAttachmentStore", "LashStore"]
