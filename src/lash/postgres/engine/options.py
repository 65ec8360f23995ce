"""The options of a PostgreSQL database, and their form in a URL."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from lash.errors import ConfigError
from lash.postgres.engine.password import Password

_INTEGERS = frozenset(
    {"max_size", "min_size", "lock_timeout_ms", "statement_timeout_ms", "idle_transaction_timeout_ms"}
)
_SECONDS = frozenset({"acquire_timeout_s", "connect_timeout_s", "idle_lifetime_s", "lifetime_s", "peer_timeout_s"})
_TEXTS = frozenset({"schema", "application_name", "listen_url"})
_OUR_KEYS = _INTEGERS | _SECONDS | _TEXTS | {"pooler"}
_TLS_KEYS = frozenset(
    {"sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"}
    | {"ssl_min_protocol_version", "ssl_max_protocol_version"}
)
_DRIVER_KEYS = _TLS_KEYS | {
    *("host", "port", "dbname", "database", "user", "password", "passfile", "service"),
    *("target_session_attrs", "krbsrvname", "gsslib"),
}
_POOLERS: Mapping[str, bool] = {"transaction": True, "none": False}
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[^\[\]:@/]*)(?::(?P<port>\d{1,5}))?")
_HIGHEST_PORT = 65535
_LONGEST_IDENTIFIER = 63
_SHORTEST_PEER_S = 6
"""Keepalive counts in whole seconds; see `lash.postgres.engine.keepalive`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """The server's address and the options of the pool. Its repr never shows the password."""

    dsn: str = dataclasses.field(default="postgresql://", repr=False)
    """The address for the driver; without a host it uses the ``PG…`` environment variables."""
    schema: str = "public"
    """The schema that holds the tables; one schema is one storage."""
    max_size: int = 16
    """The most connections of this pool. Beyond the first it opens one only if less than 3/4 of the server's are used.

    A worker has one more to listen.
    """
    min_size: int = 0
    """Connections held open even when idle."""
    acquire_timeout_s: float = 30
    """How long a call waits for a free connection."""
    connect_timeout_s: float = 10
    idle_lifetime_s: float = 600
    """An idle connection is closed after this time; 0 keeps it."""
    lifetime_s: float = 1800
    """A connection is replaced after at most this time, so that a failover takes effect; 0 keeps it."""
    lock_timeout_ms: int = 10_000
    statement_timeout_ms: int = 30_000
    idle_transaction_timeout_ms: int = 5_000
    """The server rolls back a transaction whose client sends nothing for this time; 0 keeps the server's own limit.

    It is shorter than ``lock_timeout_ms``, so that a statement that waits for a frozen worker is still served.
    """
    peer_timeout_s: float = 30
    """A connection is closed after this time without a sign of life from the other machine; 0 keeps the system's limit.

    Both ends check: the client's socket, and the server unless it is behind a pooler in transaction mode.
    """
    pooler: bool = False
    """Whether the URL is that of a pooler in transaction mode (pgbouncer).

    Then ``lock_timeout_ms`` and ``statement_timeout_ms`` cannot be sent to the server: set them on the role
    (``ALTER ROLE … SET lock_timeout = …``). Statements are not kept prepared, which costs a second round trip each, and
    LISTEN does not work: without ``listen_url``, waits notice writes of other storages after up to a second.
    """
    listen_url: str | None = dataclasses.field(default=None, repr=False)
    """A URL that leads to the same database without a pooler; one connection receives notifications there."""
    application_name: str = "lash"
    password: Password | None = dataclasses.field(default=None, repr=False)
    """Returns the password for each new connection, such as a token that expires; it replaces that of the URL."""

    @classmethod
    def from_url(cls, url: str, **overrides: object) -> Self:
        """Read ``postgresql://user:password@host:port/database?schema=…&max_size=…``; overrides take precedence.

        Our own keys are taken out of the query string, the driver's (``host``, ``sslmode`` …) are left for it. Raises
        :class:`ConfigError` for any other key and for a value that does not fit.
        """
        parts = _split(url)
        given: dict[str, str] = dict(_query_of(parts))
        _refuse_unknown(given.keys() - _OUR_KEYS - _DRIVER_KEYS)
        _refuse_unknown(overrides.keys() - _OUR_KEYS)
        rest = {key: value for key, value in given.items() if key in _DRIVER_KEYS}
        dsn = urlunsplit(parts._replace(query=urlencode(rest)))
        if not parts.netloc:
            # urlunsplit drops the empty authority of "postgresql:///database".
            dsn = dsn.replace(":", "://", 1) if "://" not in dsn else dsn
        ours = {key: value for key, value in given.items() if key in _OUR_KEYS}
        return cls(dsn=dsn, **_typed({**ours, **overrides}))  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        _check(self.max_size >= 1, "max_size", "a whole number of at least 1")
        _check(0 <= self.min_size <= self.max_size, "min_size", "a whole number from 0 to max_size")
        _check(self.acquire_timeout_s > 0, "acquire_timeout_s", "a number of seconds above 0")
        _check(self.connect_timeout_s > 0, "connect_timeout_s", "a number of seconds above 0")
        _check(self.idle_lifetime_s >= 0, "idle_lifetime_s", "a number of seconds, 0 for no limit")
        _check(self.lifetime_s >= 0, "lifetime_s", "a number of seconds, 0 for no limit")
        _check(self.lock_timeout_ms > 0, "lock_timeout_ms", "a whole number of milliseconds above 0")
        _check(self.statement_timeout_ms > 0, "statement_timeout_ms", "a whole number of milliseconds above 0")
        limit = "a whole number of milliseconds, 0 for the server's own limit"
        _check(self.idle_transaction_timeout_ms >= 0, "idle_transaction_timeout_ms", limit)
        limit = f"a number of seconds from {_SHORTEST_PEER_S}, or 0 for the system's own limit"
        _check(self.peer_timeout_s >= _SHORTEST_PEER_S or self.peer_timeout_s == 0, "peer_timeout_s", limit)
        if self.listen_url is not None:
            _check_listen_url(self.listen_url)
        identifier = 0 < len(self.schema.encode()) <= _LONGEST_IDENTIFIER and "\0" not in self.schema
        _check(identifier, "schema", f"a name of 1 to {_LONGEST_IDENTIFIER} bytes")

    @property
    def address(self) -> str:
        """The server's host and port, for messages."""
        return _address(self.dsn)

    @property
    def listen_dsn(self) -> str:
        """The address of the connection that receives notifications."""
        return self.listen_url or self.dsn

    @property
    def listen_address(self) -> str:
        """The host and port of that connection, for messages."""
        return _address(self.listen_dsn)


def _address(dsn: str) -> str:
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    hosts = unquote(parts.netloc.rpartition("@")[2]) or query.get("host", "the local server")
    has_port = re.search(r":\d+$", hosts) is not None
    return hosts if has_port else f"{hosts}:{query.get('port', '5432')}"


def _check_listen_url(url: str) -> None:
    """Refuse a URL that is malformed or has options of lash: they belong into the main URL."""
    try:
        keys = {key for key, _ in _query_of(_split(url))}
    except ConfigError as error:
        raise ConfigError(f"PostgreSQL option 'listen_url': {error}") from None
    allowed = "a URL with options of the driver only; lash's own options belong to the URL of the storage"
    _check(keys <= _DRIVER_KEYS, "listen_url", allowed)


def _split(url: str) -> SplitResult:
    """Split the URL, refusing one whose user or password would be taken for something else and be shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError("the PostgreSQL URL is malformed: an IPv6 address is written in [brackets]") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ConfigError("a PostgreSQL URL begins with postgresql://")
    hosts = parts.netloc.rpartition("@")[2].split(",")
    misread = parts.netloc.count("@") > 1 or "@" in parts.path or bool(parts.fragment)
    if misread or not all(_is_host(host) for host in hosts):
        raise ConfigError(
            "malformed PostgreSQL URL: expected postgresql://user:password@host:port/database?key=value; "
            "write the characters @ : / ? # in the user or the password as %40 %3A %2F %3F %23"
        )
    return parts


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return match is not None and int(match["port"] or 0) <= _HIGHEST_PORT


def _query_of(parts: SplitResult) -> list[tuple[str, str]]:
    try:
        return parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigError("malformed PostgreSQL URL: expected key=value&key=value after ?") from None


def _refuse_unknown(keys: set[str]) -> None:
    if keys:
        allowed = ", ".join(sorted(_OUR_KEYS))
        raise ConfigError(
            f"unknown PostgreSQL option {min(keys)!r}; expected one of {allowed}, or an option of the driver"
        )


def _typed(given: Mapping[str, object]) -> dict[str, object]:
    return {key: _value(key, value) for key, value in given.items()}


def _value(key: str, value: object) -> object:
    if key in _INTEGERS:
        return _number(key, value, int)
    if key in _SECONDS:
        return _number(key, value, float)
    if key in _TEXTS:
        _check(isinstance(value, str), key, "text")
        return value
    if isinstance(value, bool):
        return value
    _check(value in _POOLERS, key, "one of " + ", ".join(_POOLERS))
    return _POOLERS[str(value)]


def _number(key: str, value: object, kind: type[int | float]) -> int | float:
    wanted = "a whole number" if kind is int else "a number of seconds"
    _check(isinstance(value, (str, int, float)) and not isinstance(value, bool), key, wanted)
    try:
        number = kind(str(value))
    except ValueError:
        raise ConfigError(f"PostgreSQL option {key!r}: expected {wanted}, got {value!r}") from None
    _check(number == number and abs(number) != float("inf"), key, wanted)  # noqa: PLR0124 (only NaN differs from itself)
    return number


def _check(holds: bool, key: str, allowed: str) -> None:  # noqa: FBT001 (reads as an assertion)
    if not holds:
        raise ConfigError(f"PostgreSQL option {key!r}: expected {allowed}")
