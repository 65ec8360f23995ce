"""Translates errors of the driver into errors of lash; no other module does."""

from __future__ import annotations

import apsw

from lash.errors import (
    CorruptData,
    ForeignDatabase,
    InvalidInput,
    LashError,
    SchemaMismatch,
    StorageClosed,
    StorageFailure,
    StoreError,
    StoreUnavailable,
)

_UNAVAILABLE = (apsw.BusyError, apsw.LockedError, apsw.InterruptError, apsw.AbortError, apsw.ProtocolError)
_FAILURE = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.PermissionsError,
    apsw.AuthError,
    apsw.NoMemError,
    apsw.NoLFSError,
)
_WRONG_TABLES = (apsw.SQLError, apsw.SchemaChangeError)

UNSTORABLE = (apsw.TooBigError, OverflowError, UnicodeError, TypeError)
"""Exceptions of the driver for a parameter that cannot be stored. The last three are Python's own, so they are
translated only around the call that binds parameters."""


def translate(error: apsw.Error, doing: str, *, at_commit: bool = False) -> LashError:
    """Return the error of lash with the same meaning; the caller raises it from the original.

    An I/O error at the commit leaves the outcome unknown: the frames may have reached the disk.

    A broken constraint becomes `CorruptData`. Every write is planned on rows that were read in the same
    transaction, so a violated constraint means that the stored rows contradict what the plan may rely on:
    neither a retry nor a new decision would help.
    """
    message = f"{doing}: {error}"
    if isinstance(error, _UNAVAILABLE):
        return StoreUnavailable(message)
    if isinstance(error, _FAILURE):
        return StorageFailure(message, outcome_unknown=at_commit and isinstance(error, apsw.IOError))
    if isinstance(error, apsw.NotADBError):
        return ForeignDatabase(message)
    if isinstance(error, apsw.CorruptError):
        return CorruptData(message)
    if isinstance(error, apsw.ConstraintError):
        return CorruptData(f"{doing}: the write contradicts the stored rows: {error}")
    if isinstance(error, UNSTORABLE):
        return InvalidInput(message)
    if isinstance(error, _WRONG_TABLES):
        return SchemaMismatch(message)
    if isinstance(error, apsw.ConnectionClosedError):
        return StorageClosed()
    return StoreError(message)


def as_lash_error(error: BaseException, doing: str, *, at_commit: bool = False) -> BaseException:
    """Return an error that may leave the engine; an error of the driver becomes its cause."""
    if isinstance(error, apsw.Error):
        translated = translate(error, doing, at_commit=at_commit)
        translated.__cause__ = error
        return translated
    return error
