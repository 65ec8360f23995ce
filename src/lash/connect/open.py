"""Opens a storage; the only module that knows both backends. Drivers are imported when they are needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypedDict

from lash.base.clock import Clock, SystemClock
from lash.base.compression import Compression
from lash.connect.url import EXAMPLES, POSTGRES, scheme_of, shown, sqlite_path
from lash.errors import ConfigError
from lash.model.session.commit import CommitBudget
from lash.model.session.session import Retention

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg

    from lash.base.seal import Sealer
    from lash.stores.attachment import ByteStore
    from lash.stores.storage import Storage


class OpenOptions(TypedDict, total=False):
    """The options of `open_storage` that do not belong to one event loop."""

    migrate: bool
    compression: Compression
    budget: CommitBudget
    retention: Retention
    attachment_bytes: ByteStore | None
    sealer: Sealer | None
    clock: Clock | None
    listen_url: str | None
    password: Callable[[], str | Awaitable[str]] | None
    on_statement: Callable[[str], None] | None


async def open_storage(
    url: str,
    *,
    migrate: bool = True,
    compression: Compression = Compression.BALANCED,
    budget: CommitBudget = CommitBudget(),
    retention: Retention = Retention(),
    attachment_bytes: ByteStore | None = None,
    sealer: Sealer | None = None,
    clock: Clock | None = None,
    pool: asyncpg.Pool[asyncpg.Record] | None = None,
    listen_url: str | None = None,
    password: Callable[[], str | Awaitable[str]] | None = None,
    on_statement: Callable[[str], None] | None = None,
) -> Storage:
    """Open the storage at the URL, and create or migrate its tables unless ``migrate`` is False.

    ``sqlite:///agents.db`` is a file relative to the working directory, ``sqlite:////var/lib/agents.db`` an
    absolute one, ``sqlite://`` lives in memory as long as the storage. ``postgresql://user@host/database`` takes the
    usual parameters and those of `lash.postgres.engine.options.PostgresOptions`; ``pool`` is a pool of your own to use
    instead of a new one. ``listen_url`` leads to the same database without a pooler in transaction mode; one connection
    receives notifications there. ``password`` returns the password for each new connection, such as a token that
    expires; it may be a coroutine function.

    ``attachment_bytes`` is where the bytes of attachments are stored, by default in the database: `lash.FileBytes`,
    `lash.S3Bytes` or a `lash.ByteStore` of your own. It must be the same one each time.

    ``sealer`` wraps values before they are stored, and unwraps them when they are read; `lash.AesGcm` encrypts them.
    Values that were stored without one stay readable. A sealed storage cannot be opened without its sealer
    (CannotUnseal).

    ``clock`` is used on SQLite only; PostgreSQL uses its server's clock. ``on_statement`` is called with the name
    of every statement before it runs.

    Raises ConfigError if no asyncio event loop is running, as under trio.
    """
    _check_event_loop()
    # Imported here so that `import lash` stays fast.
    from lash.base.seal import Seals
    from lash.base.shapes import prepare_foreign
    from lash.plan.session.commit import CommitRules

    rules = CommitRules(compression=_compression(compression), budget=budget, retention=retention)
    seals, scheme = Seals(sealer), scheme_of(url)
    if scheme in POSTGRES:
        from lash.postgres.storage import PostgresStorage

        prepare_foreign()
        return await PostgresStorage.open(
            url,
            migrate=migrate,
            rules=rules,
            attachment_bytes=attachment_bytes,
            pool=pool,
            listen_url=listen_url,
            password=password,
            on_statement=on_statement,
            seals=seals,
        )
    if scheme != "sqlite":
        raise ConfigError(f"unknown URL scheme {shown(scheme or url)}; expected {EXAMPLES}")
    only = {"pool": pool, "listen_url": listen_url, "password": password}
    for option in (name for name, value in only.items() if value is not None):
        raise ConfigError(f"expected a postgresql:// URL with {option}; SQLite has none")
    from lash.sqlite.storage import SQLiteStorage, options_from_query

    prepare_foreign()
    path, query = sqlite_path(url)
    return await SQLiteStorage.open(
        path,
        migrate=migrate,
        rules=rules,
        attachment_bytes=attachment_bytes,
        options=options_from_query(query),
        clock=clock or SystemClock(),
        on_statement=on_statement,
        seals=seals,
    )


def is_sqlite(storage: Storage) -> bool:
    """Return whether an open storage is on SQLite: its short writes end without waiting."""
    # Not imported: what is on SQLite has imported it, and other programs do without.
    backend = sys.modules.get("lash.sqlite.storage")
    return backend is not None and isinstance(storage, backend.SQLiteStorage)


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
