"""Names and times of ChatKit as ids and keys of lash."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from lash.adapters.names import short
from lash.base.limits import MAX_IDENTIFIER_LENGTH
from lash.errors import ConfigError

THREADS: Final = "chatkit.threads"
"""Threads of all users, in the order of their creation."""
THREAD_IDS: Final = "chatkit.thread-ids"
ITEMS: Final = "chatkit.items"
ITEM_IDS: Final = "chatkit.item-ids"
ATTACHMENTS: Final = "chatkit.attachments"
_PART: Final = 80
_EPOCH_US: Final = 10**17
"""Added to microseconds, so that moments before 1970 sort too."""
_last_ns = 0


def user_of(context: object) -> str:
    """Return the user of a request: ``context.user_id``, or the key ``user_id`` of a dict."""
    user = context.get("user_id") if isinstance(context, dict) else getattr(context, "user_id", None)
    if user is None or not str(user):
        raise ConfigError(
            "expected a context with a user_id; give LashStore a function as user, such as "
            "LashStore(url, user=lambda context: context.email)"
        )
    return str(user)


def owner_of(user: str) -> str | None:
    """Return a user as the owner of a session; None if its id cannot be one."""
    return user if user.strip() and short(user, MAX_IDENTIFIER_LENGTH) == user else None


def below(user: str, name: str = "") -> str:
    """Return the key of something of a user, or the start of all of them."""
    return f"{part(user)}/{part(name) if name else ''}"


def part(text: str) -> str:
    """Return a name as a part of a key."""
    return short(text.replace("%", "%25").replace("/", "%2F"), _PART)


def session_id(user: str, thread_id: str) -> str:
    """Return the id of the lash session of a thread."""
    return f"chatkit:{part(user)}/{part(thread_id)}"


def bytes_id(user: str, attachment_id: str) -> str:
    """Return the id of the lash session with the bytes of an attachment."""
    return f"chatkit-attachment:{part(user)}/{part(attachment_id)}"


def moment(created_at: datetime) -> str:
    """Return a time as text that sorts; one without a time zone is local, as in ChatKit."""
    return f"{round(created_at.timestamp() * 1_000_000) + _EPOCH_US:020d}"


def place(created_at: datetime) -> str:
    """Return a new place in the order of creation; equal times are in the order of the calls."""
    global _last_ns  # noqa: PLW0603 (one sequence for the process)
    _last_ns = max(_last_ns + 1, time.time_ns())
    return f"{moment(created_at)}.{_last_ns:020d}"
