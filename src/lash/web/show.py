"""Turns stored values into HTML. Everything shown is hostile: models and users wrote it.

htpy escapes text. This module adds what escaping does not cover: characters that hide or reverse text become visible
escapes, and a text has a limit. No stored text becomes a link, markup or a style.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlencode

import htpy as h
import msgspec

from lash.cli.output import escaped, one_line
from lash.cli.text import age, moment, plain
from lash.web.forms import FIELD, PLACEHOLDER

MOST_TEXT: Final = 20_000
"""How many characters of one text a page shows."""
_LONG: Final = 30
"""From so many characters on, a name may be cut by the width of the page; it is then also beside the pointer."""
MOST_JSON: Final = 8_000
_TONES: Final = {
    **dict.fromkeys(("running", "completed", "enabled", "ready", "active", "claimed", "ok", "done"), "good"),
    **dict.fromkeys(("failed", "abandoned", "rejected", "refused", "unknown", "dead", "late", "fail"), "bad"),
    **dict.fromkeys(
        (
            "waiting",
            "parked",
            "sleeping",
            "retrying",
            "delayed",
            "queued",
            "cancelling",
            "draining",
            "disabled",
            "warn",
        ),
        "warn",
    ),
}

Redact = Callable[[str], str]


def link(page: str, /, **parameters: str | int | None) -> str:
    """Return the address of a page, relative to every page, so that the console works below any path."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return (page or "./") + (f"?{urlencode(given)}" if given else "")


def line(text: str, most: int = 200) -> str:
    """Return a text as one line of bounded length, without characters that hide or reverse it."""
    kept = one_line(text[: most + 1])
    return kept if len(text) <= most else f"{kept[:most]}…"


def block(text: str, most: int = MOST_TEXT) -> str:
    """Return a text of several lines, bounded and without characters that hide or reverse it."""
    shown = "\n".join(escaped(each) for each in text[:most].split("\n"))
    return shown if len(text) <= most else f"{shown}\n… {len(text) - most:,} more characters"


def json_text(value: object) -> str:
    """Return a value as indented JSON, as it is stored."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode("utf-8", "replace")


def json_block(value: object, redact: Redact) -> h.Element:
    return h.pre(".json")[block(redact(json_text(value)), MOST_JSON)]


def ago(at_ms: int | None) -> h.Renderable:
    """Return an age, or how far in the future a time is, with the exact time beside the pointer."""
    if at_ms is None:
        return h.span(".quiet")["-"]
    exact = moment(at_ms)
    return h.time(datetime=exact, title=exact)[age(at_ms)]


def badge(word: str, text: str | None = None) -> h.Element:
    """Return a state in its colour; the words carry the meaning, the colour repeats it."""
    return h.span(class_=["badge", _TONES.get(word, "")])[line(text or word)]


def name_link(page: str, name: str, text: str | None = None, **more: str) -> h.Element:
    """Return a link to the page of one thing, by its id."""
    shown = line(text or name, 80)
    return h.a(".row", href=link(page, id=name, **more), title=shown if len(shown) > _LONG else None)[shown]


class Column(NamedTuple):
    title: str
    is_number: bool = False


def table(columns: Sequence[Column | str], rows: Iterable[Sequence[h.Node]], *, nothing: h.Node) -> h.Renderable:
    """Return a table, or what to do next if there is nothing in it."""
    heads = [Column(each) if isinstance(each, str) else each for each in columns]
    body = [_row(heads, row) for row in rows]
    if not body:
        return h.p(".empty")[nothing]
    titles = (h.th(scope="col", class_={"number": head.is_number})[head.title] for head in heads)
    return h.div(".scroll", tabindex="0", role="region", aria_label="table")[
        h.table[h.thead[h.tr[titles]], h.tbody[body]]
    ]


def _row(heads: Sequence[Column], cells: Sequence[h.Node]) -> h.Element:
    return h.tr[(h.td(class_={"number": head.is_number})[cell] for head, cell in zip(heads, cells, strict=True))]


def facts(pairs: Iterable[tuple[str, h.Node]]) -> h.Element:
    """Return names and values, each value below its name; a value of None is left out."""
    return h.dl(".facts")[(h.div[h.dt[name], h.dd[value]] for name, value in pairs if value is not None)]


def act(
    action: str, label: str, fields: Mapping[str, str], *inputs: h.Node, danger: bool = False, quiet: bool = False
) -> h.Element:
    """Return a form with one button. It works without JavaScript, and only with the visitor's token."""
    hidden = (h.input(type="hidden", name=name, value=value) for name, value in {**fields, FIELD: PLACEHOLDER}.items())
    return h.form(".act", method="post", action=action)[
        hidden, *inputs, h.button(type="submit", class_={"danger": danger, "quiet": quiet})[label]
    ]


def search_form(page: str, *controls: h.Node) -> h.Element:
    """Return a form of filters, which end up in the address of the page."""
    return h.form(".filters", method="get", action=page, role="search")[*controls, h.button(type="submit")["Filter"]]


def text_field(name: str, label: str, value: str, *, key: bool = False, wide: bool = False) -> h.Element:
    """Return a labelled field of a filter; ``key`` marks the one that the key ``/`` jumps to."""
    attributes = {"data-key": "search"} if key else {}
    return h.label(class_={"wide": wide})[
        h.span[label], h.input(attributes, type="search" if key else "text", name=name, value=value)
    ]


def choice_field(name: str, label: str, value: str, choices: Iterable[str], *, empty: str = "any") -> h.Element:
    """Return a labelled choice of a filter; ``empty`` is the text of no choice."""
    options = (h.option(value=each, selected=each == value)[each or empty] for each in ("", *choices))
    return h.label[h.span[label], h.select(name=name)[options]]


def more_link(page: str, parameters: Mapping[str, str], cursor: str | None, name: str = "after") -> h.Node:
    """Return the link to the next page of a list, if there is one."""
    if cursor is None:
        return None
    kept = {key: value for key, value in parameters.items() if key != name}
    return h.p(".more")[h.a(rel="next", href=link(page, **{**kept, name: cursor}))["Next page"]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
