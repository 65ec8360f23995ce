"""From the driver's exceptions to ours: what each means, and whether repeating the statement can help.

This is the one seam. Everything that talks to the driver catches :data:`DRIVER_ERRORS` and asks here.
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
"""All that the driver raises. ``TimeoutError`` is an ``OSError`` too, and named since it means something else."""


class Phase(enum.Enum):
    """How far a call had come when the driver failed."""

    CONNECT = "connect"
    """Nothing of it was sent."""
    STATEMENT = "statement"
    """A statement that commits by itself was under way."""
    TRANSACTION = "transaction"
    """A transaction was open; without its COMMIT nothing of it counts."""
    COMMIT = "commit"
    """The COMMIT was under way."""


class Remedy(enum.Enum):
    """Whether repeating can help."""

    REPEAT = "repeat"
    """It surely was not applied, and may succeed the next time."""
    REPEAT_ONCE = "repeat_once"
    """The same, but each try has already waited long."""
    REPEAT_IF_HARMLESS = "repeat_if_harmless"
    """The connection was lost under way: it may have been applied."""
    GIVE_UP = "give_up"
    """The next try would end alike, or has waited long enough."""


_ROLLED_BACK = frozenset({"40001", "40P01"})
_LOCK_TIMEOUT = "55P03"
_TOO_MANY_CONNECTIONS = "53300"
_SHUTDOWN = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})
_QUERY_CANCELED = "57014"
_POOLER_SIGNS = frozenset({"26000", "42P05", "08P01"})

_Make = Callable[[str], LashError]
_BY_CODE: Mapping[str, _Make] = {
    "22003": InvalidInput,
    "25006": StorageFailure,
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
    # A constraint that our own statement breaks means that the plan and the stored rows disagree.
    "23": CorruptData,
    "28": ConfigError,
    "40": StoreUnavailable,
    "53": StoreUnavailable,
    "54": InvalidInput,
    "58": StorageFailure,
}


def sqlstate_of(error: BaseException) -> str:
    """Return the server's code for the error, or nothing for an error of the driver or the network."""
    code = getattr(error, "sqlstate", None)
    return code if isinstance(code, str) else ""


def is_connection_loss(error: BaseException) -> bool:
    """Say whether the error means that there is no working connection (any more)."""
    if isinstance(error, TimeoutError):
        return False
    code = sqlstate_of(error)
    # The driver reports a connection that dies under its feet as an internal error too.
    broken = isinstance(error, (OSError, asyncpg.InternalClientError)) or _says_closed(error)
    return broken or code.startswith("08") or code in _SHUTDOWN


def is_unsent(error: BaseException) -> bool:
    """Say whether the driver refused to send, because it had seen the connection end or heard that it will."""
    # The server says why it closes a connection before it does. The driver then waits for the end in a state that
    # takes no statement, and has no class for saying so.
    refused = str(error).startswith(("cannot switch to state", "not connected"))
    return (refused and isinstance(error, asyncpg.InternalClientError)) or _says_closed(error)


def remedy_for(error: BaseException, phase: Phase) -> Remedy:
    """Decide whether the call may be tried again."""
    code = sqlstate_of(error)
    if phase is Phase.CONNECT:
        connects_later = code == _TOO_MANY_CONNECTIONS or (is_connection_loss(error) and not _is_misconfigured(error))
        return Remedy.REPEAT if connects_later else Remedy.GIVE_UP
    if code in _ROLLED_BACK or (phase is Phase.STATEMENT and is_unsent(error)):
        return Remedy.REPEAT
    if code == _LOCK_TIMEOUT:
        return Remedy.REPEAT_ONCE
    return Remedy.REPEAT_IF_HARMLESS if is_connection_loss(error) else Remedy.GIVE_UP


def translate(error: BaseException, phase: Phase, *, action: str, address: str, reads: bool = False) -> LashError:
    """Return our error for the driver's; ``action`` and ``address`` go into its text."""
    text = f"{action} {address}: {_summary(error)}"
    if phase is Phase.CONNECT and _is_misconfigured(error):
        return ConfigError(text)
    if isinstance(error, TimeoutError) or is_connection_loss(error):
        in_flight = phase in {Phase.STATEMENT, Phase.COMMIT} and not reads
        return StoreUnavailable(text, outcome_unknown=in_flight)
    code = sqlstate_of(error)
    if code in _POOLER_SIGNS:
        return ConfigError(f"{text}; with a pooler in transaction mode, add pooler=transaction to the URL")
    if code in {_LOCK_TIMEOUT, _QUERY_CANCELED} or isinstance(error, asyncpg.InvalidCachedStatementError):
        return StoreUnavailable(text)
    make: _Make = _BY_CODE.get(code) or _BY_CLASS.get(code[:2]) or StoreError
    return make(text)


def pool_failure(error: BaseException) -> LashError | None:
    """Return the error for a pool that was closed by its owner, which no other pool or try can mend."""
    if isinstance(error, asyncpg.InterfaceError) and "pool is clos" in str(error):
        return StorageClosed()
    return None


def _is_misconfigured(error: BaseException) -> bool:
    if isinstance(error, (asyncpg.ClientConfigurationError, ssl.SSLCertVerificationError)):
        return True
    code = sqlstate_of(error)
    # While connecting, 08P01 is a pooler that refuses a startup setting and 42704 a server that does not know one.
    return code[:2] in {"28", "3D", "42"} or code == "08P01"


def _says_closed(error: BaseException) -> bool:
    # The driver has no class for these: a connection seen to be dead, and one that its pool took back when it died.
    text = str(error)
    gone = "connection is closed" in text or "released back to the pool" in text
    return gone and isinstance(error, asyncpg.InterfaceError)


def _summary(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    first_line = str(error).partition("\n")[0] or type(error).__name__
    code = sqlstate_of(error)
    return f"{first_line} ({code})" if code else first_line
