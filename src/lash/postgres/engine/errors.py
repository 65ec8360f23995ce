"""Translates exceptions of the driver into errors of lash, and decides whether a retry can help.

No other module does. Everything that calls the driver catches :data:`DRIVER_ERRORS` and asks this one.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Callable, Mapping

from lash.errors import (
    ConfigError,
    CorruptData,
    InvalidInput,
    LashError,
    SchemaMismatch,
    StorageClosed,
    StorageFailure,
    StoreError,
    StoreUnavailable,
)
from lash.postgres.engine.driver import asyncpg

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""All exceptions of the driver. ``TimeoutError`` is an ``OSError`` too, but means something else."""


class FailurePhase(enum.Enum):
    """How far a call had got when the driver failed."""

    CONNECT = "connect"
    """Nothing was sent yet."""
    STATEMENT = "statement"
    """A statement that is its own transaction was in flight."""
    TRANSACTION = "transaction"
    """A transaction was open; without its COMMIT nothing is applied."""
    COMMIT = "commit"
    """The COMMIT was in flight."""


class Remedy(enum.Enum):
    """Whether a retry can help."""

    RETRY = "retry"
    """The statement was certainly not applied, and may succeed the next time."""
    RETRY_ONCE = "retry_once"
    """The same, but each try has already waited long."""
    RETRY_IF_IDEMPOTENT = "retry_if_idempotent"
    """The connection was lost while the statement was in flight: it may have been applied."""
    GIVE_UP = "give_up"
    """Another try would fail as well, or the call has waited long enough."""


_ROLLED_BACK = frozenset({"40001", "40P01"})
_LOCK_TIMEOUT = "55P03"
_TOO_MANY_CONNECTIONS = "53300"
_IDLE_TRANSACTION = "25P03"
_SHUTDOWN = frozenset({"57P01", "57P02", "57P03", "57P05", _IDLE_TRANSACTION})
_QUERY_CANCELED = "57014"
_READ_ONLY = frozenset({"0A000", "25006"})
"""The codes for a BEGIN and for a statement on a server that takes no writes."""
_POOLER_SIGNS = frozenset({"26000", "42P05", "08P01"})
"""Errors about prepared statements, which a pooler in transaction mode loses."""
_READ_ONLY_REMEDY = (
    "if it is a standby, name all servers and add target_session_attrs=read-write; "
    "if the role or the database has default_transaction_read_only, reset it"
)
_POOLER_REMEDY = "with a pooler in transaction mode, add pooler=transaction to the URL"

_Make = Callable[[str], LashError]
_BY_CODE: Mapping[str, _Make] = {
    "22003": InvalidInput,
    # Parameters are typed: only a stored text can fail to be JSON.
    "22P02": CorruptData,
    "3D000": ConfigError,
    "3F000": SchemaMismatch,
    "42501": StorageFailure,
    "42703": SchemaMismatch,
    "42883": SchemaMismatch,
    "42P01": SchemaMismatch,
    "53100": StorageFailure,
    "53400": StorageFailure,
    "XX001": CorruptData,
    "XX002": CorruptData,
}
_BY_CLASS: Mapping[str, _Make] = {
    "22": InvalidInput,
    # A constraint that lash's own statement violates means that the plan and the stored rows disagree.
    "23": CorruptData,
    "28": ConfigError,
    "40": StoreUnavailable,
    "53": StoreUnavailable,
    "54": InvalidInput,
    "58": StorageFailure,
}


def sqlstate_of(error: BaseException) -> str:
    """Return the server's code for the error; empty for an error of the driver or the network."""
    code = getattr(error, "sqlstate", None)
    return code if isinstance(code, str) else ""


def is_connection_loss(error: BaseException) -> bool:
    """Return whether the error means that the connection failed or was lost."""
    if isinstance(error, TimeoutError):
        return False
    code = sqlstate_of(error)
    # The driver also reports a connection that dies during a call as an internal error.
    broken = isinstance(error, (OSError, asyncpg.InternalClientError)) or _says_closed(error)
    return broken or code.startswith("08") or code in _SHUTDOWN


def is_read_only(error: BaseException) -> bool:
    """Return whether the server takes no writes: a standby, or a primary that was demoted."""
    return sqlstate_of(error) in _READ_ONLY


def is_unsent(error: BaseException) -> bool:
    """Return whether the driver sent nothing because the connection was closed or closing."""
    # The server announces that it closes a connection. The driver then waits for the close in a state that takes no
    # statement, and has no exception class for it.
    refused = str(error).startswith(("cannot switch to state", "not connected"))
    return (refused and isinstance(error, asyncpg.InternalClientError)) or _says_closed(error)


def is_server_full(error: BaseException) -> bool:
    """Return whether the server has no free connection."""
    return sqlstate_of(error) == _TOO_MANY_CONNECTIONS


def is_refused_setting(error: BaseException) -> bool:
    """Return whether a pooler refused a setting in the startup message; a server takes all that lash sends."""
    return sqlstate_of(error) == "08P01" and "startup parameter" in str(error)


def is_taken_key(error: BaseException) -> bool:
    """Return whether lash's error means that a concurrent transaction took a unique key first."""
    return error.__cause__ is not None and sqlstate_of(error.__cause__) == "23505"


def remedy_for(error: BaseException, phase: FailurePhase) -> Remedy:
    """Decide whether the call may be retried."""
    code = sqlstate_of(error)
    if phase is FailurePhase.CONNECT:
        connects_later = is_server_full(error) or (is_connection_loss(error) and not _is_misconfigured(error))
        return Remedy.RETRY if connects_later else Remedy.GIVE_UP
    if code in _ROLLED_BACK or (phase is FailurePhase.STATEMENT and is_unsent(error)):
        return Remedy.RETRY
    if code == _LOCK_TIMEOUT:
        return Remedy.RETRY_ONCE
    return Remedy.RETRY_IF_IDEMPOTENT if is_connection_loss(error) else Remedy.GIVE_UP


def translate(
    error: BaseException, phase: FailurePhase, *, action: str, address: str, reads: bool = False
) -> LashError:
    """Return lash's error for the driver's; ``action`` and ``address`` go into its message."""
    text = f"{action} {address}: {_summary(error)}"
    code = sqlstate_of(error)
    if phase is FailurePhase.CONNECT and _is_misconfigured(error):
        return ConfigError(f"{text}; {_POOLER_REMEDY}" if is_refused_setting(error) else text)
    if isinstance(error, TimeoutError) or is_connection_loss(error):
        in_flight = phase in {FailurePhase.STATEMENT, FailurePhase.COMMIT} and not reads
        # A COMMIT that finds its transaction rolled back, or its connection closed, was not executed.
        refused = code == _IDLE_TRANSACTION or (phase is FailurePhase.COMMIT and is_unsent(error))
        return StoreUnavailable(text, outcome_unknown=in_flight and not refused)
    if code in _POOLER_SIGNS:
        return ConfigError(f"{text}; {_POOLER_REMEDY}")
    if code in {_LOCK_TIMEOUT, _QUERY_CANCELED} or isinstance(error, asyncpg.InvalidCachedStatementError):
        return StoreUnavailable(text)
    if code in _READ_ONLY:
        return StorageFailure(f"{text}; {_READ_ONLY_REMEDY}")
    make: _Make = _BY_CODE.get(code) or _BY_CLASS.get(code[:2]) or StoreError
    return make(text)


def pool_failure(error: BaseException) -> LashError | None:
    """Return the error for a pool that its owner closed, for which no retry can help."""
    if isinstance(error, asyncpg.InterfaceError) and "pool is clos" in str(error):
        return StorageClosed()
    return None


def _is_misconfigured(error: BaseException) -> bool:
    if isinstance(error, (asyncpg.ClientConfigurationError, ssl.SSLCertVerificationError)):
        return True
    code = sqlstate_of(error)
    # While connecting, 08P01 is a pooler that refuses a startup setting, 42704 a server that does not know one.
    return code[:2] in {"28", "3D", "42"} or code == "08P01"


def _says_closed(error: BaseException) -> bool:
    # The driver has no class for these: a connection known to be closed, and one that its pool took back.
    text = str(error)
    gone = "connection is closed" in text or "released back to the pool" in text
    return gone and isinstance(error, asyncpg.InterfaceError)


def _summary(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    first_line = str(error).partition("\n")[0] or type(error).__name__
    code = sqlstate_of(error)
    return f"{first_line} ({code})" if code else first_line
