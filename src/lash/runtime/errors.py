"""What steps raise to say something to the runtime, and what the runtime raises to end a run."""

from __future__ import annotations

from typing import Final

from lash.errors import StorageFailure, StoreUnavailable
from lash.model.value import JSON

STORAGE_TROUBLE: Final = (StoreUnavailable, StorageFailure)
"""The database is unavailable, full or failing; attempts that end with these errors do not count."""
_LONGEST_MESSAGE: Final = 4_000


class Permanent(Exception):
    """Raise this, or a subclass, when another attempt cannot help: of a step, or of the turn or process itself."""


class ProgramFailed(Permanent):
    """Raised by an engine to end a process as failed, with a code and details of the program's own.

    ``raw`` is stored beside the message, in the place of a traceback.
    """

    def __init__(self, code: str, message: str, raw: JSON = None) -> None:
        super().__init__(message)
        self.code = code
        self.raw = raw


class Suspended(BaseException):
    """The run stops here and continues later or elsewhere; code must not swallow it."""


def error_code(error: BaseException) -> str:
    """Return the name of an error's class, as it is stored."""
    return storable(type(error).__qualname__)[:200]


def error_text(error: BaseException) -> str:
    """Return what an error says, as it can be stored, whatever it is; its name if it says nothing."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (an error that cannot be shown must not hide that there was one)
        text = ""
    return storable(text)[:_LONGEST_MESSAGE] or error_code(error)


def storable(text: str) -> str:
    """Return the text with what no database can keep replaced."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
