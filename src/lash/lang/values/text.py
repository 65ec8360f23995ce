"""Builtins on text."""

from __future__ import annotations

import re
from typing import Final

from lash.lang.values.convert import as_integer, as_text
from lash.lang.values.fault import type_error, value_error
from lash.lang.values.value import List, ListBuilder, Value, check_length, kind, make_list, make_record

_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters that Unicode calls white space; `str.strip` also takes four separators that are not."""
_LINE_END: Final = re.compile("\r?\n")


def starts_with(text: Value, beginning: Value) -> Value:
    return as_text(text, "starts_with").startswith(as_text(beginning, "starts_with"))


def ends_with(text: Value, end: Value) -> Value:
    return as_text(text, "ends_with").endswith(as_text(end, "ends_with"))


def trim(text: Value) -> Value:
    return as_text(text, "trim").strip(_WHITE_SPACE)


def split(text: Value, separator: Value) -> Value:
    """Split text; an empty separator separates each character, with an empty text before and after."""
    whole, between = as_text(text, "split"), as_text(separator, "split")
    return make_list(whole.split(between) if between else ["", *whole, ""])


def join(items: Value, separator: Value) -> Value:
    if not isinstance(items, List):
        raise type_error(f"join needs a list, got {kind(items)}")
    between, length = as_text(separator, "join"), 0
    pieces: list[str] = []
    for item in items.items:
        length += len(between) if pieces else 0
        pieces.append(as_text(item, "join"))
        length += len(pieces[-1])
        check_length(length)
    return between.join(pieces)


def find(text: Value, needle: Value, start: Value = 0.0) -> Value:
    """Return where a text first occurs in another, or null."""
    whole, part, begin = as_text(text, "find"), as_text(needle, "find"), as_integer(start, "find")
    begin = max(begin + len(whole), 0) if begin < 0 else begin
    place = whole.find(part, begin) if begin <= len(whole) else -1
    return None if place < 0 else float(place)


def grep_text(text: Value, needle: Value) -> Value:
    """Return the lines that contain a text, each with its number and the place of the first match."""
    whole, part = as_text(text, "grep_text"), as_text(needle, "grep_text")
    if not part:
        raise value_error("grep_text needs a text that is not empty")
    found = ListBuilder()
    lines = _LINE_END.split(whole)
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
        place = line.find(part)
        if place >= 0:
            fields: dict[str, Value] = {"line": float(number), "text": line, "match": part}
            fields |= {"start": float(place), "end": float(place + len(part))}
            found.add(make_record(fields))
    return found.done()
