"""What a page is made from, and what it is made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import htpy as h

from lash.stores.storage import Storage
from lash.web.show import Redact, link


class Visit(NamedTuple):
    """One look at a page: its storage, its parameters, and what the visitor may do.

    Two visits with equal parameters and rights see the same, so the stream renders a page once for all of them.
    """

    storage: Storage
    query: Mapping[str, str]
    may_act: bool
    redact: Redact
    path: str = ""

    @property
    def here(self) -> str:
        """The address of the page, to which an act returns."""
        return link(self.path, **{name: value for name, value in self.query.items() if name != "done"})

    def parameter(self, name: str) -> str:
        return self.query.get(name, "").strip()

    def number(self, name: str) -> int | None:
        """Return a parameter as a number; None if it is missing or not a number."""
        given = self.parameter(name)
        return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None  # noqa: PLR2004 (int64)


class WebPage(NamedTuple):
    """A page as pieces that are replaced one by one while it is open; each piece has an id of its own."""

    title: str
    pieces: tuple[h.Element, ...]


View: TypeAlias = Callable[[Visit], Awaitable[WebPage]]
