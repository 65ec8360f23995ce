"""Exit codes for scripts, and one-line messages for errors."""

from __future__ import annotations

from typing import Final

import click

from lash.errors import (
    CannotUnseal,
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
    UnknownDefinition,
    WaitTimedOut,
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
    OK: "success, also of a dry run",
    ERROR: "failure, a finding of an audit, or a declined confirmation",
    USAGE: "invalid option, argument, URL or value; nothing was done",
    NOT_FOUND: "unknown session, process, agent, trigger, wait, worker, record or dead letter",
    CONFLICT: "another writer was first, or the state has changed: check it and decide again",
    UNAVAILABLE: "the database did not answer in time, or an awaited reply or result did not come; try again later",
    SCHEMA: "no storage, or another schema than this version needs: `lash init`, `lash db migrate`",
    INTERRUPTED: "Ctrl-C",
    PIPE_CLOSED: "the reader of the output closed it, as `head` does",
}
"""The meaning of each code, for the reference page."""

_CODES: Final[tuple[tuple[tuple[type[LashError], ...], int], ...]] = (
    ((ConfigError, InvalidInput, CannotUnseal), USAGE),
    ((NotFound, SessionDeleted, UnknownDefinition), NOT_FOUND),
    ((Conflict, LeaseLost, ClaimLost, EffectLeaseLost), CONFLICT),
    ((StoreUnavailable, WaitTimedOut), UNAVAILABLE),
    ((SchemaMismatch,), SCHEMA),
)


class CommandFailed(Exception):
    """Ends a command with this exit code and, unless it is empty, this message."""

    def __init__(self, code: int, line: str = "") -> None:
        super().__init__(line)
        self.code = code
        self.line = line


class OutputClosed(Exception):
    """The reader of the output has closed it."""


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error, and its message; empty if none is needed."""
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
        case UnicodeEncodeError():
            # Python keeps other bytes of an argument as half characters, which no database takes.
            return USAGE, "expected arguments in UTF-8, got other bytes"
        case MemoryError() | OSError():
            return ERROR, _one_line(f"{error}")
    return ERROR, _one_line(f"bug in lash: {type(error).__name__}: {error} (--debug shows the traceback)")


def code_of(error: LashError) -> int:
    """Return the exit code of an error of the library."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ERROR)


def _lash_line(error: LashError) -> str:
    if isinstance(error, SessionNotFound):
        # The library's remedy is a Python call.
        return f"session {error.session_id!r} does not exist"
    if isinstance(error, PendingMigrations) and error.found == 0:
        return "no storage at this URL; create it with: lash init"
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
    return " ".join(text.split()) or "failed without a message"
