"""Readable descriptions of failures, as text that any database can store."""

from __future__ import annotations

import traceback
from typing import Final

_REASON_LENGTH: Final = 1_000
_TRACE_LENGTH: Final = 8_000


def describe_failure(error: BaseException) -> str:
    """Return the type and the text of an error, shortened; never raises, even if the error's ``__str__`` does."""
    return _printable("".join(traceback.format_exception_only(error)).strip())[:_REASON_LENGTH]


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error, only its end if it is long."""
    return _printable("".join(traceback.format_exception(error)))[-_TRACE_LENGTH:]


def _printable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
