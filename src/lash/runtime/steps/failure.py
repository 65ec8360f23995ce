"""Readable descriptions of failures, as text that any database can store."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from lash.errors import EffectMismatch, LashError

_PROGRAMMING_ERRORS: Final = (AttributeError, NameError, ImportError, SyntaxError, EffectMismatch)
_REASON_LENGTH: Final = 1_000
_TRACE_LENGTH: Final = 8_000
"""How much of a traceback is stored and logged, in characters."""
_PIECE_LENGTH: Final = 1_000
"""How much of one frame or one message is kept, so that a long message leaves room for the frames above it."""
_PACKAGE: Final = Path(__file__).parents[2]
_OWN_FRAMES: Final = f"{_PACKAGE}/"
_EXAMPLE_FRAMES: Final = f"{_PACKAGE / 'demo'}/"
"""The demo is an application like any other."""


def describe_failure(error: BaseException) -> str:
    """Return the type and the text of an error, shortened; never raises, even if the error's ``__str__`` does."""
    try:
        text = "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # noqa: BLE001 (an error that cannot be shown must not hide that there was one)
        text = type(error).__qualname__
    return _printable(text[:_REASON_LENGTH])[:_REASON_LENGTH]


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error without the frames of lash; never raises.

    The causes are included. A long one loses its middle, a long message its end.
    """
    try:
        shown = traceback.TracebackException.from_exception(error, compact=True)
        _cut_own_frames(shown, keep_all=not isinstance(error, LashError))
        pieces = [_shortened(piece) for piece in shown.format()]
    except Exception:  # noqa: BLE001 (an error that cannot be shown must not hide that there was one)
        pieces = [describe_failure(error)]
    text = _printable("".join(pieces)).rstrip()
    if len(text) <= _TRACE_LENGTH:
        return text
    mark = "\n  ...\n"
    head, tail = text[: _TRACE_LENGTH // 4], text[-(_TRACE_LENGTH * 3 // 4 - len(mark)) :]
    return f"{head}{mark}{tail}"


def is_programming_error(error: BaseException, handler: Callable[..., object]) -> bool:
    """Return whether an error is one of the code: the same code raises it again, however often it is tried.

    A TypeError is one if the handler itself raises it, or its call. Further inside, as in a library that got an
    unexpected answer, it depends on data.
    """
    if isinstance(error, _PROGRAMMING_ERRORS):
        return True
    if not isinstance(error, TypeError):
        return False
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    frames = [code for code in frames if not is_own_frame(code.co_filename)]
    return not frames or frames[-1] is getattr(inspect.unwrap(_function(handler)), "__code__", None)


def _function(handler: Callable[..., object]) -> Callable[..., object]:
    """Return the function behind a partial or a bound method."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__func__", handler)


def is_own_frame(filename: str) -> bool:
    """Return whether a frame of this file is part of lash, not of the application."""
    return filename.startswith(_OWN_FRAMES) and not filename.startswith(_EXAMPLE_FRAMES)


def _cut_own_frames(shown: traceback.TracebackException, *, keep_all: bool) -> None:
    """Remove the frames of lash; if there are no others, keep them unless lash raised the error on purpose."""
    for each in _whole_chain(shown):
        kept = [frame for frame in each.stack if not is_own_frame(frame.filename)]
        if kept or not (keep_all and each is shown):
            each.stack = traceback.StackSummary.from_list(kept)


def _whole_chain(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    waiting = [shown]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += [near for near in (each.__cause__, each.__context__) if near is not None]
        waiting += each.exceptions or ()


def _shortened(piece: str) -> str:
    return piece if len(piece) <= _PIECE_LENGTH else f"{piece[:_PIECE_LENGTH]}...\n"


def _printable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
