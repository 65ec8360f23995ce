"""Exit codes that scripts can trust, and the one line that says what went wrong."""

from __future__ import annotations

from typing import Final

import click

from lash.errors import (
    ClaimLost,
    ConfigError,
    Conflict,
    EffectLeaseLost,
    InvalidInput,
    LashError,
    LeaseLost,
    NotFound,
    PendingMigrations,
    SchemaMismatch,
    SessionDeleted,
    SessionNotFound,
    StoreUnavailable,
)

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
UNAVAILABLE: Final = 5
SCHEMA: Final = 6
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

MEANINGS: Final = {
    OK: "done; or a dry run that found out what it would do",
    ERROR: "it failed, an audit found something, or you answered no",
    USAGE: "wrong options, arguments, URL or value; nothing was done",
    NOT_FOUND: "the session, process, trigger, wait or dead letter does not exist (any more)",
    CONFLICT: "somebody else was first, or it is in another state by now: look again, decide again",
    UNAVAILABLE: "the database did not answer in time; try again later",
    SCHEMA: "there is no storage, or its schema is not that of this version: `lash init`, `lash db migrate`",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output went away, as `head` does",
}
"""What each code means, for the reference page."""

_CODES: Final[tuple[tuple[tuple[type[LashError], ...], int], ...]] = (
    ((ConfigError, InvalidInput), USAGE),
    ((NotFound, SessionDeleted), NOT_FOUND),
    ((Conflict, LeaseLost, ClaimLost, EffectLeaseLost), CONFLICT),
    ((StoreUnavailable,), UNAVAILABLE),
    ((SchemaMismatch,), SCHEMA),
)


class CommandFailed(Exception):
    """A command ends with this code and, unless it has said all, this line."""

    def __init__(self, code: int, line: str = "") -> None:
        super().__init__(line)
        self.code = code
        self.line = line


class OutputClosed(Exception):
    """Nobody reads the output any more."""


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error, and the line that explains it; empty where nothing needs to be said."""
    match error:
        case CommandFailed():
            return error.code, error.line
        case OutputClosed() | BrokenPipeError():
            return PIPE_CLOSED, ""
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED, ""
        case click.UsageError():
            return USAGE, _usage_line(error)
        case click.ClickException():
            return ERROR, _one_line(error.format_message())
        case SystemExit():
            return (error.code if isinstance(error.code, int) else ERROR), ""
        case LashError():
            return code_of(error), _lash_line(error)
        case MemoryError() | OSError():
            return ERROR, _one_line(f"{error}")
    return ERROR, _one_line(f"this is a fault of lash: {type(error).__name__}: {error} (--debug shows where)")


def code_of(error: LashError) -> int:
    """Return the exit code of an error of the library."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ERROR)


def _lash_line(error: LashError) -> str:
    if isinstance(error, SessionNotFound):
        # What the library advises is for programmers.
        return f"session {error.session_id!r} does not exist"
    if isinstance(error, PendingMigrations) and error.found == 0:
        return "there is no storage at this URL yet; create it with: lash init"
    if isinstance(error, PendingMigrations):
        return (
            f"the storage has schema {error.found} and needs {len(error.pending)} more migrations; "
            "apply them with: lash db migrate"
        )
    return _one_line(str(error))


def _usage_line(error: click.UsageError) -> str:
    message = _one_line(error.format_message())
    path = "lash" if error.ctx is None else error.ctx.command_path
    return f"{message.rstrip('.')} (see: {path} --help)"


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "it failed without saying why"
