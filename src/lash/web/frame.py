"""The document around every page: head, navigation, keys."""

from __future__ import annotations

from typing import Final

import htpy as h

from lash.web.show import line, link
from lash.web.view import WebPage

NAVIGATION: Final = (
    ("", "Overview"),
    ("sessions", "Sessions"),
    ("processes", "Processes"),
    ("inbox", "Inbox"),
    ("queue", "Queue"),
    ("workers", "Workers"),
    ("triggers", "Triggers"),
    ("tokens", "Tokens"),
    ("storage", "Storage"),
)
THEMES: Final = ("auto", "light", "dark")
_KEYS: Final = (
    ("/", "search"),
    ("j k", "next and previous row"),
    ("Enter", "open the row"),
    ("g then s p i q w t u o", "go to a page"),
    ("?", "this list"),
)


def document(page: WebPage, path: str, *, title: str, theme: str, stream: str | None, message: str = "") -> str:
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
                _header(path, title, shown_theme),
                h.main("#main", tabindex="-1")[
                    h.h1[line(page.title, 120)], message and h.p(".notice", role="status")[line(message)], *page.pieces
                ],
                _keys(),
            ],
        ]
    )


def _header(path: str, title: str, theme: str) -> h.Element:
    links = (
        h.a(href=link(page), aria_current="page" if page == path else None, data_page=page or "overview")[name]
        for page, name in NAVIGATION
    )
    themes = (h.option(value=each, selected=each == theme)[each] for each in THEMES)
    return h.header[
        h.a(".brand", href="./")[title],
        h.nav(aria_label="Pages")[links],
        h.span("#stream-state", role="status")[""],
        h.label(".theme")[h.span(".hidden")["Colours"], h.select("#theme")[themes]],
    ]


def _keys() -> h.Element:
    rows = ((h.dt[h.kbd[keys]], h.dd[meaning]) for keys, meaning in _KEYS)
    return h.dialog("#keys", aria_label="Keys")[
        h.h2["Keys"], h.dl(".facts")[rows], h.form(method="dialog")[h.button["Close"]]
    ]
