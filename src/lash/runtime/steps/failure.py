"""What people read about a failure, as text that any database takes."""

from __future__ import annotations

import traceback
from typing import Final

_REASON_LENGTH: Final = 1_000
_TRACE_LENGTH: Final = 8_000


def describe_failure(error: BaseException) -> str:
    """Return the kind of an error and what it says, in short; never raise, whatever the error does when asked."""
    return _printable("".join(traceback.format_exception_only(error)).strip())[:_REASON_LENGTH]


def trace_of(error: BaseException) -> str:
    """Return where an error came from, the end of it if it is long."""
    return _printable("".join(traceback.format_exception(error)))[-_TRACE_LENGTH:]


def _printable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
