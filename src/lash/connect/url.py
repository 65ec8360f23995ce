"""The URL of a storage: its scheme, the file that it names, and whether two URLs name the same storage."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from lash.errors import ConfigError

POSTGRES: Final = ("postgresql", "postgres")
EXAMPLES: Final = "sqlite:///agents.db, sqlite:// (in memory) or postgresql://user@host/database"
_DEFAULT_PORT: Final = "5432"
_ADDRESS: Final = frozenset({"user", "password", "host", "port", "dbname", "database"})
"""Parts of an address that may be in the query string instead."""


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, empty if it has none."""
    if not isinstance(url, str):
        raise ConfigError(f"expected a URL such as {EXAMPLES}, got {type(url).__name__}")
    return url.partition("://")[0] if "://" in url else ""


def shown(text: str) -> str:
    """Return a text for a message; a text with an @ may hold a password and is not shown."""
    return "a text with '@' in it" if "@" in text else f"{text!r:.80}"


def sqlite_path(url: str) -> tuple[str | None, str]:
    """Return the path, None for memory, and the query string."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"malformed URL {shown(url)}: {error}") from None
    if parts.fragment:
        raise ConfigError(f"{shown(url)} contains '#'; in a file name write it as %23")
    if parts.netloc:
        host = "file" if "@" in parts.netloc else parts.netloc[:80]
        raise ConfigError(f"{shown(url)} names a host; write a file with three slashes: sqlite:///{host}")
    path = unquote(parts.path.removeprefix("/"))
    if "\0" in path:
        raise ConfigError("the path of the storage contains a NUL character")
    return (None if path in ("", ":memory:") else path), parts.query


def absolute_url(url: str) -> str:
    """Return a URL that names the same storage from any working directory."""
    if scheme_of(url) != "sqlite":
        return url
    path, query = sqlite_path(url)
    if path is None:
        return url
    return f"sqlite:///{quote(os.path.abspath(path))}{'?' if query else ''}{query}"  # noqa: PTH100 (links are kept)


def identity_of(url: str) -> Hashable:
    """Return a value that is equal for two URLs of the same storage with the same options.

    Raises ConfigError for a malformed URL.
    """
    scheme = scheme_of(url)
    if scheme in POSTGRES:
        return _postgres_identity(url)
    if scheme != "sqlite":
        raise ConfigError(f"unknown URL scheme {shown(scheme or url)}; expected {EXAMPLES}")
    path, query = sqlite_path(url)
    try:
        file = None if path is None else os.path.realpath(path)
    except ValueError:
        raise ConfigError(f"invalid file name in {shown(url)}") from None
    return file, tuple(sorted(parse_qsl(query, keep_blank_values=True)))


def _postgres_identity(url: str) -> Hashable:
    # Imported here because SQLite needs none of it.
    from dataclasses import replace

    from lash.postgres.engine.options import PostgresOptions

    options = PostgresOptions.from_url(url)
    parts = urlsplit(options.dsn)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = unquote(parts.path.removeprefix("/")) or query.get("dbname", query.get("database"))
    user = query.get("user") if parts.username is None else unquote(parts.username)
    password = query.get("password") if parts.password is None else unquote(parts.password)
    hosts = unquote(parts.netloc.rpartition("@")[2]) or query.get("host", "")
    port = query.get("port", _DEFAULT_PORT)
    servers = tuple(_server(host, port) for host in hosts.split(","))
    rest = tuple(sorted((key, value) for key, value in query.items() if key not in _ADDRESS))
    return replace(options, dsn="postgresql://"), servers, database, user, password, rest


def _server(host: str, port: str) -> str:
    """Return one host with its port."""
    name, colon, own_port = host.rpartition(":")
    has_port = bool(colon) and own_port.isdecimal()
    return f"{(name if has_port else host).lower()}:{own_port if has_port else port}"
