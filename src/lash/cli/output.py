"""Writes all output of the command: no stored text can drive the terminal or break a line.

Only this file writes to standard output and standard error. The escape sequences of colours are added here, after the
text was escaped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple, TextIO

from lash.cli.text import plain

ERASE: Final = "\r\x1b[K"
"""Returns to the start of the line and clears it."""
_KEPT: Final = frozenset("\t\u200c\u200d")
"""Tabs, and the two joiners: they belong to the writing of several languages, and to emoji."""
_SPACES: Final = str.maketrans("\t\r\n", "   ")
_ONE_UNIT_BELOW: Final = 0x10000
_BOLD, _RED, _GREEN, _YELLOW, _END = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
_STYLES: Final = {
    "heading": _BOLD,
    **dict.fromkeys(("running", "completed", "enabled", "ok", "started", "ready", "active", "claimed"), _GREEN),
    **dict.fromkeys(("failed", "fail", "abandoned", "rejected", "unknown"), _RED),
    **dict.fromkeys(("waiting", "parked", "sleeping", "retrying", "delayed", "in_progress", "cancelling"), _YELLOW),
    **dict.fromkeys(("cancelled", "disabled", "trigger", "no", "late", "draining", "warn"), _YELLOW),
}


class Piece(NamedTuple):
    """A part of a line, in the colour of a word such as a state, or in bold if the word is ``heading``."""

    text: str
    word: str = ""


Line = str | Sequence[Piece]


def escaped(text: str) -> str:
    """Return a text as one line without characters that drive a terminal, hide or reverse text.

    Escaped are the categories Cc, Cf, Cs, Co, Cn, Zl and Zp: control, format, half, private and unassigned characters,
    and separators of lines. Tabs, and the joiners of words and emoji, stay.
    """
    # Printable in Python's sense is everything but these categories and spaces other than U+0020.
    return text if text.isprintable() else "".join(map(_visible, text))


def one_line(text: str) -> str:
    """Return a text for a table: line breaks and tabs become spaces, and the rest is escaped."""
    return escaped(text.translate(_SPACES))


def _is_harmless(letter: str) -> bool:
    return letter.isprintable() or letter in _KEPT or unicodedata.category(letter) == "Zs"


def _visible(letter: str) -> str:
    return letter if _is_harmless(letter) else letter.encode("unicode_escape").decode()


def json_line(value: object, encoding: str | None = "utf-8") -> str:
    """Return one line of JSON that can be shown on a terminal and decodes to the same value.

    The same characters as in other output are escaped, in the way of JSON. With an encoding other than UTF-8, every
    character that is not ASCII is.
    """
    # Imported here so that help and completion stay fast.
    import msgspec

    shown = plain(value)
    try:
        text = msgspec.json.encode(shown).decode()
    except UnicodeEncodeError:
        # The name of a file may have bytes that are not UTF-8; Python keeps them as half characters.
        import json

        return json.dumps(shown)
    if text.isascii() and text.isprintable():
        return text
    if (encoding or "").casefold().replace("-", "") != "utf8":
        return "".join(letter if letter.isascii() and letter.isprintable() else _units(letter) for letter in text)
    return text if text.isprintable() else "".join(map(_visible_in_json, text))


def _visible_in_json(letter: str) -> str:
    return letter if _is_harmless(letter) else _units(letter)


def _units(letter: str) -> str:
    """Return the JSON escape of a character: one or two UTF-16 units."""
    code = ord(letter)
    if code < _ONE_UNIT_BELOW:
        return f"\\u{code:04x}"
    high, low = divmod(code - _ONE_UNIT_BELOW, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def write(stream: TextIO, *lines: Line, coloured: bool = False, before: str = "", end: str = "\n") -> None:
    """Write lines, each of them escaped, and flush."""
    text = "\n".join(_rendered(line, coloured=coloured) for line in lines)
    stream.write(f"{before}{text}{end}")
    stream.flush()


def _rendered(line: Line, *, coloured: bool) -> str:
    if isinstance(line, str):
        return escaped(line)
    return "".join(_painted(escaped(text), word if coloured else "") for text, word in line)


def _painted(text: str, word: str) -> str:
    return f"{_STYLES[word]}{text}{_END}" if word in _STYLES else text
