"""Opens a storage; the only module that knows both backends. Drivers are imported when they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lash.base.clock import Clock, SystemClock
from lash.base.compression import Compression
from lash.errors import ConfigError
from lash.model.session.commit import CommitBudget
from lash.model.session.session import Retention

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    from lash.stores.attachment import ByteStore
    from lash.stores.storage import Storage

_POSTGRES = ("postgresql", "postgres")
_EXAMPLES = "sqlite:///agents.db, sqlite:// (in memory) or postgresql://user@host/database"


async def open_storage(
    url: str,
    *,
    migrate: bool = True,
    compression: Compression = Compression.BALANCED,
    budget: CommitBudget = CommitBudget(),
    retention: Retention = Retention(),
    attachment_bytes: ByteStore | None = None,
    clock: Clock | None = None,
    pool: asyncpg.Pool[asyncpg.Record] | None = None,
    listen_url: str | None = None,
    on_statement: Callable[[str], None] | None = None,
) -> Storage:
    """Open the storage at the URL, and create or migrate its tables unless ``migrate`` is False.

    ``sqlite:///agents.db`` is a file relative to the working directory, ``sqlite:////var/lib/agents.db`` an
    absolute one, ``sqlite://`` lives in memory as long as the storage. ``postgresql://user@host/database`` takes the
    usual parameters and those of `lash.postgres.engine.options.PostgresOptions`; ``pool`` is a pool of your own to use
    instead of a new one. ``listen_url`` leads to the same database without a pooler in transaction mode; one connection
    receives notifications there.

    ``attachment_bytes`` is where the bytes of attachments are stored, by default in the database: `lash.FileBytes`,
    `lash.S3Bytes` or a `lash.ByteStore` of your own. It must be the same one each time.

    ``clock`` is used on SQLite only; PostgreSQL uses its server's clock. ``on_statement`` is called with the name
    of every statement before it runs.

    Raises ConfigError if no asyncio event loop is running, as under trio.
    """
    _check_event_loop()
    # Imported here so that `import lash` stays fast.
    from lash.base.codec import describe_shapes
    from lash.plan.session.commit import CommitRules

    rules = CommitRules(compression=_compression(compression), budget=budget, retention=retention)
    scheme = _scheme(url)
    if scheme in _POSTGRES:
        from lash.postgres.storage import PostgresStorage

        describe_shapes()
        return await PostgresStorage.open(
            url,
            migrate=migrate,
            rules=rules,
            attachment_bytes=attachment_bytes,
            pool=pool,
            listen_url=listen_url,
            on_statement=on_statement,
        )
    if scheme != "sqlite":
        raise ConfigError(f"unknown URL scheme {_shown(scheme or url)}; expected {_EXAMPLES}")
    if pool is not None or listen_url is not None:
        option = "listen_url" if pool is None else "pool"
        raise ConfigError(f"expected a postgresql:// URL with {option}; SQLite has none")
    from lash.sqlite.storage import SQLiteStorage, options_from_query

    describe_shapes()
    path, query = _sqlite_path(url)
    return await SQLiteStorage.open(
        path,
        migrate=migrate,
        rules=rules,
        attachment_bytes=attachment_bytes,
        options=options_from_query(query),
        clock=clock or SystemClock(),
        on_statement=on_statement,
    )


def _check_event_loop() -> None:
    # Imported here so that `import lash` stays fast.
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "expected a running asyncio event loop, got none; call lash from asyncio.run(), or from anyio with its "
            "asyncio backend. Under trio, call lash.sync in a thread: trio.to_thread.run_sync"
        ) from None


def _compression(name: str) -> Compression:
    try:
        return Compression(name)
    except ValueError:
        raise ConfigError(f"unknown compression {name!r}; expected one of {', '.join(Compression)}") from None


def _scheme(url: str) -> str:
    if not isinstance(url, str):
        raise ConfigError(f"expected a URL such as {_EXAMPLES}, got {type(url).__name__}")
    return url.partition("://")[0] if "://" in url else ""


def _shown(text: str) -> str:
    """Return a text for a message; a text with an @ may hold a password and is not shown."""
    return "a text with '@' in it" if "@" in text else f"{text!r:.80}"


def _sqlite_path(url: str) -> tuple[str | None, str]:
    """Return the path, None for memory, and the query string."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"malformed URL {_shown(url)}: {error}") from None
    if parts.fragment:
        raise ConfigError(f"{_shown(url)} contains '#'; in a file name write it as %23")
    if parts.netloc:
        host = "file" if "@" in parts.netloc else parts.netloc[:80]
        raise ConfigError(f"{_shown(url)} names a host; write a file with three slashes: sqlite:///{host}")
    path = unquote(parts.path.removeprefix("/"))
    if "\0" in path:
        raise ConfigError("the path of the storage contains a NUL character")
    return (None if path in ("", ":memory:") else path), parts.query
