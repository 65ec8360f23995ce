"""The document around every page: head, navigation, keys."""

from __future__ import annotations

from typing import Final, NamedTuple

import htpy as h

from lash.web.forms import BACK
from lash.web.show import block, line, link
from lash.web.view import WebPage


class Place(NamedTuple):
    """A page of the navigation, and the key that follows ``g`` to go there."""

    page: str
    name: str
    key: str


NAVIGATION: Final = (
    Place("", "Overview", "o"),
    Place("sessions", "Sessions", "s"),
    Place("processes", "Processes", "p"),
    Place("inbox", "Inbox", "i"),
    Place("queue", "Queue", "q"),
    Place("workers", "Workers", "w"),
    Place("triggers", "Triggers", "t"),
    Place("tokens", "Tokens", "u"),
    Place("storage", "Storage", "d"),
    Place("acts", "Acts", "a"),
)
THEMES: Final = ("auto", "light", "dark")
_PARTS: Final = {"session": "sessions", "process": "processes"}
"""The pages of one thing, by the list that they belong to."""
_KEYS: Final = (
    ("/", "search"),
    ("j k", "next and previous row"),
    ("Enter", "open the row"),
    *((f"g {place.key}", place.name) for place in NAVIGATION),
    ("?", "this list"),
)


def document(
    page: WebPage, path: str | None, *, title: str, theme: str, here: str, stream: str | None, message: str = ""
) -> str:
    """Return the whole document of a page. It is complete without JavaScript; with it, the pieces stay current."""
    shown_theme = theme if theme in THEMES else "auto"
    return str(
        h.html(lang="en", data_theme=shown_theme)[
            h.head[
                h.meta(charset="utf-8"),
                h.meta(name="viewport", content="width=device-width, initial-scale=1"),
                h.meta(name="color-scheme", content="light dark"),
                h.title[f"{line(page.title, 80)} · {title}"],
                h.link(rel="icon", href="static/icon.svg", type="image/svg+xml"),
                h.link(rel="stylesheet", href="static/console.css"),
                h.script(src="static/idiomorph.min.js", defer=True),
                h.script(src="static/console.js", defer=True),
            ],
            h.body(data_stream=stream)[
                h.a(".skip", href="#main")["Skip to the content"],
                _header(path, title, shown_theme, here),
                h.main("#main", tabindex="-1")[
                    h.h1[line(page.title, 120)], message and h.p(".notice", role="status")[line(message)], *page.pieces
                ],
                _keys(),
            ],
        ]
    )


def error_page(title: str, text: str) -> WebPage:
    """Return the page of an error. The navigation leads on; a form is found again with the browser's own button."""
    shown = h.section("#error")[
        h.p(".notice.bad", role="alert")[block(text, 2_000)],
        h.p[h.a(href="./")["To the overview"], ", or back with your browser to the page before."],
    ]
    return WebPage(title, (shown,))


def _header(path: str | None, title: str, theme: str, here: str) -> h.Element:
    current = path if path is None else _PARTS.get(path, path)
    links = (
        h.a(href=link(place.page), aria_current="page" if place.page == current else None, data_go=place.key)[
            place.name
        ]
        for place in NAVIGATION
    )
    themes = (h.option(value=each, selected=each == theme)[each] for each in THEMES)
    return h.header[
        h.a(".brand", href="./")[title],
        h.nav(aria_label="Pages")[links],
        h.span("#stream-state", role="status")[""],
        h.form(".theme", method="get", action="theme")[
            h.input(type="hidden", name=BACK, value=here),
            h.label[h.span(".hidden")["Colours"], h.select("#theme", name="theme")[themes]],
            h.noscript[h.button(type="submit")["Set"]],
        ],
    ]


def _keys() -> h.Element:
    rows = ((h.dt[h.kbd[keys]], h.dd[meaning]) for keys, meaning in _KEYS)
    return h.dialog("#keys", aria_label="Keys")[
        h.h2["Keys"], h.dl(".keys")[rows], h.form(method="dialog")[h.button["Close"]]
    ]
