"""The words of a running turn, as its agent shows them."""

from __future__ import annotations

from typing import Final

import msgspec

from lash.errors import SessionNotFound
from lash.model.activity import Activity
from lash.model.lease import Lease
from lash.model.value import JSON
from lash.stores.storage import Storage

_WINDOWS: Final = (256, 64, 16, 4, 1)
"""How many of the last pieces are tried: activity is deleted after a while, and a read from before that has a gap."""


async def spoken(storage: Storage, session_id: str, holder: Lease | None) -> str:
    """Return the text that the running turn has shown so far; empty if no worker holds the session."""
    if holder is None:
        return ""
    try:
        newest = (await storage.activity.read(session_id)).newest
    except SessionNotFound:
        return ""
    for window in _WINDOWS:
        start = msgspec.structs.replace(newest, position=max(newest.position - window, 0))
        page = await storage.activity.read(session_id, start, limit=window)
        if page.gap is None:
            return _text(page.activity)
    return ""


def _text(activity: tuple[Activity, ...]) -> str:
    """Return the text of the last turn in the activity."""
    if not activity:
        return ""
    turn_id = activity[-1].turn_id
    payloads = [each.payload for each in activity if each.turn_id == turn_id and each.payload is not msgspec.UNSET]
    return "".join(map(_piece, payloads))


def _piece(payload: JSON | msgspec.UnsetType) -> str:
    if isinstance(payload, str):
        return payload
    text = payload.get("text") if isinstance(payload, dict) else None
    return text if isinstance(text, str) else ""
