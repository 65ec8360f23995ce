"""The pages of the console, each in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lash.web.pages.acts import acts
from lash.web.pages.inbox import inbox
from lash.web.pages.overview import overview
from lash.web.pages.process import process
from lash.web.pages.processes import processes
from lash.web.pages.queue import queue
from lash.web.pages.session import session
from lash.web.pages.sessions import sessions
from lash.web.pages.storage import storage
from lash.web.pages.tokens import tokens
from lash.web.pages.triggers import triggers
from lash.web.pages.workers import workers
from lash.web.view import View

PAGES: Final[Mapping[str, View]] = {
    "": overview,
    "sessions": sessions,
    "session": session,
    "processes": processes,
    "process": process,
    "inbox": inbox,
    "queue": queue,
    "workers": workers,
    "triggers": triggers,
    "tokens": tokens,
    "storage": storage,
    "acts": acts,
}
"""The pages by their path."""

__all__ = ["PAGES"]
