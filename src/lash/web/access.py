"""What a request may do, and who makes it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from starlette.requests import Request


class Access(enum.StrEnum):
    """What a request may do."""

    READ = "read"
    """See every page."""
    ALL = "all"
    """See every page, and act: send, cancel, requeue, answer."""


class Visitor(NamedTuple):
    """The person or program behind a request, and what it may do."""

    access: Access
    name: str = "console"
    """The name under which acts are recorded."""

    @property
    def may_act(self) -> bool:
        return self.access is Access.ALL


AccessCheck: TypeAlias = Callable[[Request], Access | Visitor | None]
"""Returns what a request may do; None refuses it."""


def visitor_of(check: AccessCheck, request: Request) -> Visitor | None:
    """Return the visitor behind a request, or None if it is refused."""
    found = check(request)
    return Visitor(found) if isinstance(found, Access) else found
