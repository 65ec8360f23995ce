"""The template of `format`: `{}` in sequence or `{0}` by number, and doubled braces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from lash.lang.values.convert import display
from lash.lang.values.fault import type_error, value_error
from lash.lang.values.value import Value, check_length, kind, make_text

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([0-9]{0,9})\}|[{}]|[^{}]+")


def fill(template: Value, arguments: Sequence[Value]) -> str:
    """Return the template with the text of its arguments; each is used, or Fault is raised."""
    if not isinstance(template, str):
        raise type_error(f"format needs a string as its template, got {kind(template)}")
    texts: list[str | None] = [None] * len(arguments)
    used: set[int] = set()
    pieces: list[str] = []
    numbered, length = None, 0
    for match in _PIECE.finditer(template):
        place = match.group(1)
        if place is None:
            pieces.append(_plain(match.group()))
            continue
        if numbered is not None and numbered != bool(place):
            raise value_error("format: use `{}` or `{0}` in a template, not both")
        numbered = bool(place)
        index = int(place) if place else len(used)
        if index >= len(arguments):
            raise value_error(f"format: the template needs argument {index}, and {len(arguments)} are given")
        text = texts[index]
        if text is None:
            text = texts[index] = display(arguments[index])
        pieces.append(text)
        used.add(index)
        length += len(text)
        check_length(length)
    if len(used) < len(arguments):
        unused = min(set(range(len(arguments))) - used)
        raise value_error(f"format: the template does not use argument {unused}")
    return make_text("".join(pieces))


def _plain(piece: str) -> str:
    if piece in ("{", "}"):
        raise value_error(f"format: a single `{piece}` in the template; write `{piece}{piece}` for the character")
    return {"{{": "{", "}}": "}"}.get(piece, piece)
