"""Attachments, as downloads only: a browser never shows the bytes of a user as a page of the console."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from starlette.responses import PlainTextResponse, Response

from lash.errors import AttachmentNotFound, InvalidInput
from lash.stores.storage import Storage

_SANDBOX: Final = "default-src 'none'; sandbox"
_ID: Final = re.compile("[0-9a-f]{64}")


async def download(storage: Storage, query: Mapping[str, str]) -> Response:
    """Return the bytes of an attachment of a session as a file to save."""
    attachment_id = query.get("id", "")
    if not _ID.fullmatch(attachment_id):
        return PlainTextResponse("unknown attachment\n", 404)
    try:
        stored = await storage.attachments.get(query.get("session", ""), attachment_id)
    except (AttachmentNotFound, InvalidInput):
        return PlainTextResponse("unknown attachment\n", 404)
    headers = {
        "Content-Disposition": f'attachment; filename="{attachment_id[:16]}"',
        "Content-Security-Policy": _SANDBOX,
    }
    # The media type is the user's; as bytes no browser interprets it.
    return Response(stored.content, media_type="application/octet-stream", headers=headers)
