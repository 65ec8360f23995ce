"""Open waits: what waits for a person, with a form to answer."""

from __future__ import annotations

from typing import Final

import htpy as h

from lash.web.show import more_link
from lash.web.view import Visit, WebPage
from lash.web.waiting import wait_cards

_PAGE: Final = 50


async def inbox(visit: Visit) -> WebPage:
    """One read of one page. The keys of waits are not read; an answer names the wait by its id."""
    found = await visit.storage.waits.pending(limit=_PAGE, after=visit.parameter("cursor") or None)
    cursor = found[-1].key_id if len(found) == _PAGE else None
    nothing = h.p(".empty")["Nothing waits for you. Agents ask here with turn.wait() and ctx.wait()."]
    pieces = (
        h.section("#found")[wait_cards(visit, found) or nothing, more_link("inbox", visit.query, cursor, "cursor")],
    )
    return WebPage("Inbox", pieces)
