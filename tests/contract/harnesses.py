"""The PostgreSQL harness, which sets the server's clock, and one with a byte store of the test's choice."""

from __future__ import annotations

from typing import Unpack

import asyncpg

import lash
from lash.postgres.engine.options import PostgresOptions
from lash.stores.attachment import ByteStore
from lash.stores.storage import Storage
from lash.testing.clock import ManualClock
from lash.testing.harness import Harness, OpenOptions, URLHarness
from tests.backends import SET_CLOCK

_INSTALL = """
    CREATE TABLE "{schema}".lash_test_clock (now_ms bigint NOT NULL);
    INSERT INTO "{schema}".lash_test_clock VALUES ({now_ms});
    CREATE OR REPLACE FUNCTION "{schema}".lash_now_ms() RETURNS bigint LANGUAGE sql VOLATILE
        AS 'SELECT now_ms FROM "{schema}".lash_test_clock';
"""
_SET = 'UPDATE "{schema}".lash_test_clock SET now_ms = {now_ms}'


class PostgresHarness(URLHarness):
    """A schema whose ``lash_now_ms()`` reads a row that the test's clock writes.

    The first opening installs the row, unless the database ``has_clock``: then no connection is needed for a clock
    that the test never moves.
    """

    def __init__(self, url: str, *, has_clock: bool = False) -> None:
        super().__init__("postgres", url, ManualClock(follow=self._set_server_clock))
        self._options = PostgresOptions.from_url(url)
        self._installed = has_clock
        self._set = SET_CLOCK if has_clock else _SET
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def open(self, **options: Unpack[OpenOptions]) -> Storage:
        storage = await super().open(**options)
        await self.install_clock()
        return storage

    async def install_clock(self) -> None:
        """Let the server follow the clock of the test, on a storage that is migrated."""
        if not self._installed:
            self._installed = True
            await self._run(_INSTALL, self.clock.now_ms())

    async def _set_server_clock(self, now_ms: int) -> None:
        await self._run(self._set, now_ms)

    async def close(self) -> None:
        await super().close()
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _run(self, script: str, now_ms: int) -> None:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._options.dsn)
        await self._connection.execute(script.format(schema=self._options.schema, now_ms=now_ms))


class _OptionsHarness:
    """A harness whose storages are opened with options that the test need not give."""

    def __init__(self, inner: Harness, **options: Unpack[OpenOptions]) -> None:
        self._inner = inner
        self._given = options
        self._opened = False

    @property
    def backend(self) -> str:
        return self._inner.backend

    @property
    def durable(self) -> bool:
        return self._inner.durable

    @property
    def clock(self) -> ManualClock:
        return self._inner.clock

    async def open(self, **options: Unpack[OpenOptions]) -> Storage:
        if self._opened and not self._inner.durable:
            return await self._inner.open(**options)
        self._opened = True
        return await self._inner.open(**self._with(options))

    async def reopen(self, **options: Unpack[OpenOptions]) -> Storage:
        return await self._inner.reopen(**self._with(options))

    def _with(self, options: OpenOptions) -> OpenOptions:
        together = self._given.copy()
        together.update(options)
        return together


class BytesHarness(_OptionsHarness):
    """A harness whose storages keep attachment bytes in a store of the test's choice."""

    def __init__(self, inner: Harness, byte_store: ByteStore) -> None:
        super().__init__(inner, attachment_bytes=byte_store)


class SealedHarness(_OptionsHarness):
    """A harness whose storages encrypt their values."""

    def __init__(self, inner: Harness) -> None:
        super().__init__(inner, sealer=lash.AesGcm({"test": bytes(32)}))
