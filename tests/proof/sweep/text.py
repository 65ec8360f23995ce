"""States and answers as text that can be compared: ids that are made by chance become numbers in their order."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from lash.errors import LashError

_ID = re.compile(r"(?<![0-9a-zA-Z])[0-9a-f]{32}(?![0-9a-zA-Z])")

State = tuple[str, ...]


def ids_in(lines: Iterable[str]) -> frozenset[str]:
    """Return the ids that these lines name."""
    return frozenset(found for line in lines for found in _ID.findall(line))


def state_of(lines: Iterable[str], known: frozenset[str], blur: str = "") -> State:
    """Return the rows in an order of their own, with every id that is not known by its number, and without a blur.

    Ids sort by the time they were made, so rows that are otherwise alike come in the order in which they were made.
    """
    numbers: dict[str, str] = {}
    if blur:
        lines = [re.sub(blur, "~", line) for line in lines]
    ordered = sorted(lines, key=lambda line: (_masked(line, known, None), line))
    return tuple(sorted(_masked(line, known, numbers) for line in ordered))


def answer_of(value: object, known: frozenset[str]) -> str:
    """Return an answer, or an error, as text."""
    if isinstance(value, LashError):
        shown = f"{type(value).__name__}: {value}"
    elif isinstance(value, BaseException):
        raise value
    else:
        shown = repr(msgspec.to_builtins(value, enc_hook=_builtin))
    return _masked(shown, known, {})


def _builtin(value: object) -> object:
    """Show what holds no state of its own, such as a handle, by its kind."""
    return f"<{type(value).__name__}>"


def _masked(text: str, known: frozenset[str], numbers: dict[str, str] | None) -> str:
    def replace(found: re.Match[str]) -> str:
        text = found[0]
        if text in known:
            return text
        return "#" if numbers is None else numbers.setdefault(text, f"#{len(numbers)}")

    return _ID.sub(replace, text)


def difference(wanted: State, found: State, *answers: str) -> str:
    """Return the rows in which two states differ, and some answers."""
    gone = [f"  - {line}" for line in wanted if line not in found]
    extra = [f"  + {line}" for line in found if line not in wanted]
    return "\n".join([*gone, *extra, *(f"  answer {answer}" for answer in answers)])
